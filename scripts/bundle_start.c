/* Each program of a bundle (scripts/bundle) has this file under its name: it starts the program
 * through the loader and the libraries of the bundle, at any location. It is linked statically, so
 * that it starts without a suitable loader on the machine.
 *
 *     ROOT/bin/fsdpck              this file
 *     ROOT/lib/start/fsdpck     -> the loader; named so that ps and top show the program's name
 *     ROOT/libexec/fsdpck          the program
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { FAILED = 5 }; /* fsdpck's exit status for read errors */

/* Where this file is, without links. There may be no /proc, and other names lead here by links only. */
static int find_self(char path[PATH_MAX])
{
    const ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (n > 0) {
        path[n] = '\0';
        return 1;
    }
    return realpath((const char *)getauxval(AT_EXECFN), path) != NULL;
}

/* "a/b" from parts; NULL where there is no memory. */
static char *join(const char *a, const char *b, const char *c)
{
    char *text = malloc(strlen(a) + strlen(b) + strlen(c) + 1);
    if (text != NULL)
        sprintf(text, "%s%s%s", a, b, c);
    return text;
}

/* Of the folders above this file the one that has its loader; NULL. */
static char *find_loader(char *folder, const char *name)
{
    char *slash;
    while ((slash = strrchr(folder, '/')) != NULL) {
        *slash = '\0';
        char *loader = join(folder, "/lib/start/", name);
        if (loader == NULL || access(loader, X_OK) == 0)
            return loader;
        free(loader);
    }
    return NULL;
}

static int fail(const char *name, const char *what, const char *why)
{
    fprintf(stderr, "%s: %s%s%s\n", name, what, why[0] == '\0' ? "" : ": ", why);
    return FAILED;
}

int main(int argc, char **argv)
{
    char root[PATH_MAX], name[NAME_MAX + 1] = "fsdpck";
    if (!find_self(root))
        return fail(name, "location of this program cannot be determined", strerror(errno));
    const char *slash = strrchr(root, '/');
    if (slash != NULL && strlen(slash + 1) <= NAME_MAX)
        strcpy(name, slash + 1);
    char *loader = find_loader(root, name);
    if (loader == NULL)
        return fail(name,
                    "bundle is incomplete, or this file was copied out of it: no lib/start/ above",
                    "unpack it again, or make a link to this file");
    /* The loader would take them for the ends of names. */
    if (strpbrk(root, ":;") != NULL)
        return fail(name, "name of the bundle's folder contains ':' or ';'", root);
    /* The bundle's libraries precede those of the machine, which provides only the GPU's driver and
     * NCCL. Preloaded libraries match the machine's C library and may not match this one. */
    const char *more = getenv("LD_LIBRARY_PATH");
    char *own = join(root, "/lib", more != NULL && more[0] != '\0' ? ":" : "");
    char *libraries = own == NULL ? NULL : join(own, more == NULL ? "" : more, "");
    char *program = join(root, "/libexec/", name);
    char **words = calloc((size_t)argc + 4, sizeof *words);
    if (libraries == NULL || program == NULL || words == NULL)
        return fail(name, "no memory", "");
    if (getenv("FSDPCK_KEEP_PRELOAD") == NULL) {
        unsetenv("LD_PRELOAD");
        unsetenv("LD_AUDIT");
    }
    words[0] = loader;
    words[1] = "--library-path";
    words[2] = libraries;
    words[3] = program;
    for (int i = 1; i < argc; i++)
        words[3 + i] = argv[i];
    execv(loader, words);
    return fail(name, loader, strerror(errno));
}
