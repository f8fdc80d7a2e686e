#include "base/path_names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

char *path_without_slashes(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return strndup(path, n);
}

char *path_real_parent(const char *path)
{
    char *parent = path_without_slashes(path);
    if (parent == NULL)
        return NULL;
    char *slash = strrchr(parent, '/');
    if (slash != NULL)
        slash[slash == parent] = '\0';
    char *real = realpath(slash == NULL ? "." : parent, NULL);
    free(parent);
    return real;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool path_is_within(const char *path, const char *folder_path)
{
    struct stat want, have;
    bool within = false;
    char *prefix = path == NULL || folder_path == NULL ? NULL : strdup(path);
    if (prefix == NULL || stat(folder_path, &want) != 0) {
        free(prefix);
        return false;
    }
    for (size_t n = strlen(prefix); n > 0 && !within;) {
        within = stat(prefix, &have) == 0 && is_same(&want, &have);
        while (n > 1 && prefix[n - 1] != '/')
            n--;
        while (n > 1 && prefix[n - 1] == '/')
            n--;
        if (n == 1 && prefix[1] == '\0')
            break;
        prefix[n] = '\0';
    }
    free(prefix);
    return within;
}

bool path_is_one_name(const char *a, const char *b)
{
    char *parents[2] = {path_real_parent(a), path_real_parent(b)};
    char *names[2] = {path_without_slashes(a), path_without_slashes(b)};
    struct stat found[2];
    bool one = false;
    if (names[0] != NULL && names[1] != NULL) {
        const char *slashes[2] = {strrchr(names[0], '/'), strrchr(names[1], '/')};
        one = path_is_within(parents[0], parents[1]) && path_is_within(parents[1], parents[0]) &&
              strcmp(slashes[0] == NULL ? names[0] : slashes[0] + 1,
                     slashes[1] == NULL ? names[1] : slashes[1] + 1) == 0;
        one = one || (stat(names[0], &found[0]) == 0 && stat(names[1], &found[1]) == 0 &&
                      is_same(&found[0], &found[1]));
    }
    for (unsigned i = 0; i < 2; i++) {
        free(parents[i]);
        free(names[i]);
    }
    return one;
}
