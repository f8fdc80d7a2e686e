/* remote.h: the files of a folder on other hosts, for the functions of file.h.
 *
 * A folder with a `remote` has the names of both sides. Local files are read directly, all others
 * through the remote. Writing, and code that does not use file.h, ignores it.
 */
#ifndef FSDPCK_IO_REMOTE_H
#define FSDPCK_IO_REMOTE_H

#include <stdbool.h>

#include "base/alloc.h"
#include "io/file.h"

typedef struct remote {
    void *ctx;
    /* Finds a file or folder of any host under this name, relative to the folder. */
    bool (*find)(void *ctx, const char *path, path_kind *kind, uint64_t *nbytes, uint32_t *id);
    /* Appends the names in the folder (sub "") or in a folder inside it to `names`, each with its
     * NUL. */
    void (*list)(void *ctx, const char *sub, text_buf *names, size_t *count);
    /* Like file_read_at; from any thread. */
    fsdpck_status (*read_at)(void *ctx, uint32_t id, uint64_t offset, void *dst, uint64_t nbytes,
                             fsdpck_error *err);
} remote;

#endif
