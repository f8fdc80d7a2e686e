/* replay_main.c: runs a fuzz target over files, with any compiler.
 *
 *     replay_NAME [FILE|FOLDER]...
 *
 * Every regular file below a folder is one input; the empty input always comes first. Each input is
 * a heap block of exactly its size, so that an address sanitizer sees a read past its end. The exit
 * status is 1 if a path cannot be read or no file was found: a replay of nothing proves nothing. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static int replay_file(const char *path, size_t nbytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(nbytes);
    int ok =
        file != NULL && (data != NULL || nbytes == 0) && fread(data, 1, nbytes, file) == nbytes;

    if (file != NULL)
        fclose(file);
    if (!ok) {
        fprintf(stderr, "cannot read '%s'\n", path);
        free(data);
        return -1;
    }
    LLVMFuzzerTestOneInput(data, nbytes);
    free(data);
    return 1;
}

static int skip_dot_entries(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* How many files were replayed, or -1. Recursion is as deep as our own corpus folders. */
static int replay(const char *path)
{
    struct dirent **entries = NULL;
    struct stat info;
    int nreplayed = 0;

    if (stat(path, &info) != 0) {
        fprintf(stderr, "cannot read '%s': %s\n", path, strerror(errno));
        return -1;
    }
    if (!S_ISDIR(info.st_mode))
        return replay_file(path, (size_t)info.st_size);

    const int nentries = scandir(path, &entries, skip_dot_entries, alphasort);
    for (int i = 0; i < nentries; i++) {
        char child[4096];
        snprintf(child, sizeof child, "%s/%s", path, entries[i]->d_name);
        free(entries[i]);
        if (nreplayed < 0)
            continue;
        const int n = replay(child);
        nreplayed = n < 0 ? -1 : nreplayed + n;
    }
    free(entries);
    return nreplayed;
}

int main(int argc, char **argv)
{
    uint8_t *empty = calloc(0, 1); /* a pointer, as from libFuzzer, without any byte */
    int nreplayed = 0;

    LLVMFuzzerTestOneInput(empty, 0);
    free(empty);
    for (int i = 1; i < argc; i++) {
        const int n = replay(argv[i]);
        if (n < 0)
            return 1;
        nreplayed += n;
    }
    if (argc > 1 && nreplayed == 0) {
        fprintf(stderr, "no file to replay under '%s'\n", argv[1]);
        return 1;
    }
    printf("%d inputs replayed, and the empty one\n", nreplayed);
    return 0;
}
