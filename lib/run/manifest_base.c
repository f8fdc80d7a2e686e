#include "run/manifest_base.h"

#include <string.h>

#include "base/text.h"

void manifest_base_of_checkpoint(manifest_base *b, const fsdpck_checkpoint *src)
{
    *b = (manifest_base){
        .own = FOLDER_CLOSED, .dir = &src->probe.dir, .path = src->path, .inside = ""};
}

fsdpck_status manifest_base_open(manifest_base *b, const fsdpck_checkpoint *src, fsdpck_error *err)
{
    manifest_base_of_checkpoint(b, src);
    /* Each rank of a group may have a different part of the files. */
    if (src->entered_from == NULL || src->remote_files != NULL)
        return FSDPCK_OK;
    const char *inside = checkpoint_path_below(src->probe.path, src->entered_from);
    if (inside == NULL)
        return FSDPCK_OK;
    RETURN_IF(folder_open(&b->own, src->entered_from, err));
    b->dir = &b->own;
    b->path = src->entered_from;
    b->is_above = true;
    b->inside = inside;
    b->inside_nbytes =
        src->probe.is_folder ? strlen(inside) : (size_t)(text_file_name(inside) - inside);
    while (b->inside_nbytes > 0 && inside[b->inside_nbytes - 1] == '/')
        b->inside_nbytes--;
    return FSDPCK_OK;
}

fsdpck_status manifest_base_name(const manifest_base *b, const char *name, text_buf *to,
                                 fsdpck_error *err)
{
    to->nbytes = 0;
    if (b->inside_nbytes > 0) {
        text_append(to, b->inside, b->inside_nbytes);
        text_puts(to, "/");
    }
    text_puts(to, name);
    return text_check(to, err);
}

void manifest_base_close(manifest_base *b)
{
    folder_close(&b->own);
}
