#define _XOPEN_SOURCE 700

#include "tests/support/scratch.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void die(const char *what, const char *path)
{
    fprintf(stderr, "scratch: %s '%s': ", what, path);
    perror(NULL);
    exit(1);
}

void scratch_make(char dir[SCRATCH_BYTES])
{
    const char *base = getenv("TMPDIR");
    snprintf(dir, SCRATCH_BYTES, "%s/fsdpck-test-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(dir) == NULL)
        die("cannot make", dir);
}

const char *scratch_path(char path[SCRATCH_BYTES], const char *dir, const char *name)
{
    if (snprintf(path, SCRATCH_BYTES, "%s/%s", dir, name) >= SCRATCH_BYTES)
        die("name too long", name);
    return path;
}

void scratch_write(const char *dir, const char *name, const void *bytes, size_t nbytes)
{
    char path[SCRATCH_BYTES];
    FILE *f = fopen(scratch_path(path, dir, name), "wb");
    if (f == NULL || fwrite(bytes, 1, nbytes, f) != nbytes || fclose(f) != 0)
        die("cannot write", path);
}

size_t scratch_count_ending(const char *dir, const char *suffix)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        die("cannot open", dir);
    size_t count = 0;
    const size_t n = strlen(suffix);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        const size_t length = strlen(e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && length >= n &&
            strcmp(e->d_name + length - n, suffix) == 0)
            count++;
    }
    closedir(d);
    return count;
}

size_t scratch_count(const char *dir)
{
    return scratch_count_ending(dir, "");
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st;
    (void)kind;
    (void)walk;
    return remove(path);
}

void scratch_remove(const char *dir)
{
    if (nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        die("cannot remove", dir);
}
