/* remote.h: what other processes see of a folder, for the functions of file.h.
 *
 * A folder with a `remote` shows the names of both sides. What is here is read here; what is not is
 * read through it. Writing, and what is found by other ways than file.h, knows nothing of it.
 */
#ifndef FSDPCK_IO_REMOTE_H
#define FSDPCK_IO_REMOTE_H

#include <stdbool.h>

#include "base/alloc.h"
#include "io/file.h"

typedef struct remote {
    void *ctx;
    /* A file or folder that somebody has under this name, relative to the folder. */
    bool (*find)(void *ctx, const char *path, path_kind *kind, uint64_t *nbytes, uint32_t *id);
    /* Names in the folder (sub "") or one inside, each with its NUL, appended to `names`. */
    void (*list)(void *ctx, const char *sub, text_buf *names, size_t *count);
    /* As file_read_at; from any thread. */
    fsdpck_status (*read_at)(void *ctx, uint32_t id, uint64_t offset, void *dst, uint64_t nbytes,
                             fsdpck_error *err);
} remote;

#endif
