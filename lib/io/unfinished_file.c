#include "io/unfinished_file.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

static const struct {
    const char *text;
    uint64_t most_nbytes; /* 0: any */
} suffixes[] = {
    {".aria2", 0}, {".part", 0},       {".crdownload", 0},
    {".!qB", 0},   {".st", 64u << 10}, {".lftp-pget-status", 0},
};

enum { SUFFIX_COUNT = sizeof suffixes / sizeof suffixes[0], ID_DIGITS = 8 };

static bool is_control_file(const folder *dir, const char *path, size_t suffix)
{
    path_kind kind;
    uint64_t nbytes = 0;
    return path_probe(dir, path, &kind, &nbytes, NULL) == FSDPCK_OK && kind == PATH_FILE &&
           (suffixes[suffix].most_nbytes == 0 || nbytes <= suffixes[suffix].most_nbytes);
}

size_t unfinished_stem_nbytes(const folder *dir, const char *path)
{
    const size_t n = strlen(path);
    for (size_t i = 0; i < SUFFIX_COUNT; i++) {
        const size_t end = strlen(suffixes[i].text);
        if (n > end && text_ends_with(path, n, suffixes[i].text))
            return suffixes[i].most_nbytes == 0 || is_control_file(dir, path, i) ? n - end : 0;
    }
    return 0;
}

bool unfinished_has_control(const folder *dir, const char *path, char *control, size_t capacity)
{
    for (size_t i = 0; i < SUFFIX_COUNT; i++) {
        const int n = snprintf(control, capacity, "%s%s", path, suffixes[i].text);
        if (n > 0 && (size_t)n < capacity && is_control_file(dir, control, i))
            return true;
    }
    return false;
}

static bool is_marked(const char *path, size_t dir_nbytes, const char *name, size_t nbytes,
                      char *marker, size_t capacity)
{
    static const char *const ends[] = {".nemo", ".ckpt", "-EMA"};
    path_kind kind;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (nbytes > strlen(ends[i]) && text_ends_with(name, nbytes, ends[i]))
            nbytes -= strlen(ends[i]);
    const int n =
        snprintf(marker, capacity, "%.*s%.*s-unfinished", (int)dir_nbytes, path, (int)nbytes, name);
    return nbytes > 0 && n > 0 && (size_t)n < capacity &&
           path_probe(NULL, marker, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE;
}

/* Bytes of the path before its last part. */
static size_t dir_nbytes(const char *path, size_t nbytes)
{
    while (nbytes > 0 && path[nbytes - 1] != '/')
        nbytes--;
    return nbytes;
}

bool unfinished_has_marker(const char *path, char *marker, size_t capacity)
{
    const size_t n = strlen(path);
    if (n >= capacity)
        return false;
    const size_t dir = dir_nbytes(path, n);
    if (is_marked(path, dir, path + dir, n - dir, marker, capacity))
        return true;
    if (dir < 2)
        return false;
    const size_t above = dir_nbytes(path, dir - 1);
    return is_marked(path, above, path + above, dir - 1 - above, marker, capacity) ||
           is_marked(path, above, path + dir, n - dir, marker, capacity);
}

bool unfinished_is_pointer(const folder *dir, const char *name)
{
    static const char begin[] = "version https://git-lfs";
    char head[sizeof begin] = "";
    file f = FILE_CLOSED;
    if (file_open_read(&f, dir, name, 0, NULL) != FSDPCK_OK)
        return false;
    const bool is = f.nbytes >= sizeof begin - 1 &&
                    file_read_at(&f, 0, head, sizeof begin - 1, NULL) == FSDPCK_OK &&
                    strcmp(head, begin) == 0;
    file_abandon(&f);
    return is;
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
