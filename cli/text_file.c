#include "text_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define FIRST_NBYTES ((size_t)64 << 10)

static fsdpck_status fail(fsdpck_error *err, fsdpck_status status, const char *path,
                          const char *before, const char *what, const char *behind)
{
    err->status = status;
    err->sys_errno = status == FSDPCK_IO ? errno : 0;
    report_set_path(err, path);
    snprintf(err->message, sizeof err->message, "%s%s%s%s%s", before, what, behind,
             status == FSDPCK_IO ? ": " : "", status == FSDPCK_IO ? strerror(errno) : "");
    return status;
}

/* The buffer grows, because the size of a pipe is unknown. */
static fsdpck_status read_all(FILE *file, const char *path, const char *what, size_t most_nbytes,
                              char **text, size_t *nbytes, fsdpck_error *err)
{
    size_t capacity = 0;
    *nbytes = 0;
    while (!feof(file)) {
        if (*nbytes > most_nbytes) {
            char longer[48];
            snprintf(longer, sizeof longer, " exceeds %zu MiB", most_nbytes >> 20);
            return fail(err, FSDPCK_LIMIT, path, "", what, longer);
        }
        if (capacity - *nbytes < 2) {
            capacity = capacity == 0 ? FIRST_NBYTES : 2 * capacity;
            char *more = realloc(*text, capacity);
            if (more == NULL)
                return fail(err, FSDPCK_LIMIT, path, "out of memory for the ", what, "");
            *text = more;
        }
        *nbytes += fread(*text + *nbytes, 1, capacity - *nbytes - 1, file);
        if (ferror(file))
            return fail(err, FSDPCK_IO, path, "cannot read the ", what, "");
    }
    if (memchr(*text, '\0', *nbytes) != NULL)
        return fail(err, FSDPCK_USAGE, path, "", what, " is not text: it contains a zero byte");
    (*text)[*nbytes] = '\0';
    return FSDPCK_OK;
}

fsdpck_status text_file_read(const char *path, const char *what, size_t most_nbytes, char **text,
                             size_t *nbytes, fsdpck_error *err)
{
    size_t count = 0;
    *text = NULL;
    if (path[0] == '\0')
        return fail(err, FSDPCK_USAGE, path, "empty file name for the ", what, "");
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (file == NULL)
        return fail(err, FSDPCK_IO, path, "cannot open the ", what, "");
    const fsdpck_status st = read_all(file, path, what, most_nbytes, text, &count, err);
    if (file != stdin)
        fclose(file);
    if (st != FSDPCK_OK) {
        free(*text);
        *text = NULL;
    }
    if (nbytes != NULL)
        *nbytes = count;
    return st;
}
