#include "io/unfinished_file.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

static const char *const suffixes[] = {".aria2", ".part", ".crdownload", ".!qB"};

enum { SUFFIX_COUNT = sizeof suffixes / sizeof suffixes[0], ID_DIGITS = 8 };

size_t unfinished_stem_nbytes(const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < SUFFIX_COUNT; i++)
        if (n > strlen(suffixes[i]) && text_ends_with(name, n, suffixes[i]))
            return n - strlen(suffixes[i]);
    return 0;
}

bool unfinished_has_control(const folder *dir, const char *path, char *control, size_t capacity)
{
    for (size_t i = 0; i < SUFFIX_COUNT; i++) {
        path_kind kind;
        const int n = snprintf(control, capacity, "%s%s", path, suffixes[i]);
        if (n > 0 && (size_t)n < capacity &&
            path_probe(dir, control, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE)
            return true;
    }
    return false;
}

bool unfinished_is_partial_output(const char *name, size_t nbytes)
{
    static const char before[] = ".fsdpck-", after[] = ".partial";
    const size_t n = sizeof before - 1 + ID_DIGITS + sizeof after - 1;
    if (name[0] != '.' || nbytes < n + 2)
        return false;
    const char *at = name + nbytes - n;
    const char *id = at + sizeof before - 1;
    return memcmp(at, before, sizeof before - 1) == 0 &&
           memcmp(id + ID_DIGITS, after, sizeof after - 1) == 0 &&
           strspn(id, "0123456789abcdef") == ID_DIGITS;
}
