#include "io/saved_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* No name of a file. */
static const char of_file_objects[] = "archive";

/* The name without its last suffix. */
static size_t stem_nbytes(const char *path)
{
    const char *dot = strrchr(text_file_name(path), '.');
    return dot != NULL ? (size_t)(dot - path) : strlen(path);
}

char *saved_name_of(const char *path, const char *root)
{
    const char *name = text_file_name(path);
    const size_t folder_nbytes = (size_t)(name - path), root_nbytes = strlen(root);
    if (root_nbytes == 0 || strcmp(root, of_file_objects) == 0 ||
        text_is(name, stem_nbytes(path) - folder_nbytes, root))
        return NULL;
    char *saved_as = malloc(folder_nbytes + root_nbytes + 1);
    if (saved_as == NULL)
        return NULL;
    memcpy(saved_as, path, folder_nbytes);
    memcpy(saved_as + folder_nbytes, root, root_nbytes + 1);
    return saved_as;
}

char *saved_name_read(const folder *dir, const char *path)
{
    enum { HEADER_NBYTES = 30, NAME_AT = 26, HEAD_NBYTES = 286 };
    uint8_t head[HEAD_NBYTES];
    file f = FILE_CLOSED;
    if (file_open_read(&f, dir, path, 0, NULL) != FSDPCK_OK)
        return NULL;
    const size_t n = f.nbytes < HEAD_NBYTES ? (size_t)f.nbytes : HEAD_NBYTES;
    const bool is_read = n > HEADER_NBYTES && file_read_at(&f, 0, head, n, NULL) == FSDPCK_OK;
    file_abandon(&f);
    if (!is_read || memcmp(head, "PK\3\4", 4) != 0)
        return NULL;
    const size_t name_nbytes = head[NAME_AT] | (size_t)head[NAME_AT + 1] << 8;
    const size_t most = n - HEADER_NBYTES < name_nbytes ? n - HEADER_NBYTES : name_nbytes;
    char *root = (char *)head + HEADER_NBYTES, *end = memchr(root, '/', most);
    if (end == NULL || memchr(root, '\0', (size_t)(end - root)) != NULL)
        return NULL;
    *end = '\0';
    return saved_name_of(path, root);
}

typedef struct named_file {
    const char *path;
    size_t nbytes; /* of the stem */
    size_t index;
} named_file;

static int compare_stems(const char *a, size_t a_nbytes, const char *b, size_t b_nbytes)
{
    const int order = memcmp(a, b, a_nbytes < b_nbytes ? a_nbytes : b_nbytes);
    return order != 0 ? order : (a_nbytes > b_nbytes) - (a_nbytes < b_nbytes);
}

static int by_stem(const void *a, const void *b)
{
    const named_file *one = a, *other = b;
    return compare_stems(one->path, one->nbytes, other->path, other->nbytes);
}

/* The file that has the name now, or NULL. */
static const named_file *find_file(const named_file *files, size_t count, const char *stem)
{
    const named_file key = {.path = stem, .nbytes = strlen(stem)};
    return bsearch(&key, files, count, sizeof *files, by_stem);
}

/* "optimizer_old.pt" of "optimizer", not "optimizer_1.bin", which is of another model. */
static bool is_longer_name(const char *path, const char *of)
{
    const size_t nbytes = strlen(of);
    return strncmp(path, of, nbytes) == 0 &&
           !(path[nbytes] == '_' && path[nbytes + 1] >= '0' && path[nbytes + 1] <= '9');
}

/* Whether a program that renames or copies files would not give this name to the other's content. */
static bool is_odd(const saved_name *own, const saved_name *other)
{
    return own->kind == SAVED_OF_RANK || ((own->kind != SAVED_ANY || other->kind != SAVED_ANY) &&
                                          !is_longer_name(own->path, own->saved_as));
}

/* Whether the file with this file's recorded name has its own, or both are in a circle of exchanged ones. */
static bool is_exchanged(const saved_name *list, const named_file *files, size_t count,
                         size_t index)
{
    const size_t first = index;
    for (size_t steps = 0; steps <= count; steps++) {
        if (list[index].saved_as == NULL)
            return true;
        const char *saved_as = list[index].saved_as;
        const named_file *found = find_file(files, count, saved_as);
        if (found == NULL)
            return false;
        if (index == first && !is_odd(&list[first], &list[found->index]))
            return false;
        index = found->index;
    }
    return true;
}

void saved_names_warn(const saved_name *list, size_t count, const char *above, const logger *log)
{
    size_t exchanged = 0, first = 0, odd = 0;
    for (size_t i = 0; i < count; i++)
        odd += list[i].saved_as != NULL;
    named_file *files = odd == 0 ? NULL : calloc(count, sizeof *files);
    if (files == NULL)
        return;
    for (size_t i = 0; i < count; i++)
        files[i] = (named_file){list[i].path, stem_nbytes(list[i].path), i};
    qsort(files, count, sizeof *files, by_stem);
    for (size_t i = count; i-- > 0;) {
        if (list[i].saved_as == NULL || !is_exchanged(list, files, count, i))
            continue;
        first = i;
        exchanged++;
    }
    if (exchanged > 0)
        log_warn(
            log, FSDPCK_FINDING_RANK_NAME,
            "check whether the files were exchanged, or copied, by mistake",
            "'%s/%s' records that it was saved as '%s', which is the name of another file here; "
            "%zu file%s of this kind",
            above, list[first].path, text_file_name(list[first].saved_as), exchanged,
            text_plural(exchanged));
    free(files);
}
