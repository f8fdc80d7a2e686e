/* manifest_base.h: the folder that the file names of a manifest are relative to: the one that was given, also if
 * the checkpoint was found inside it.
 *
 *     manifest_base b;
 *     RETURN_IF(manifest_base_open(&b, src, err));
 *     ... b.dir, b.path ...
 *     RETURN_IF(manifest_base_name(&b, "model.safetensors", &text, err));   // "step-1/model.safetensors"
 *     manifest_base_close(&b);
 */
#ifndef FSDPCK_RUN_MANIFEST_BASE_H
#define FSDPCK_RUN_MANIFEST_BASE_H

#include "open/checkpoint.h"

typedef struct manifest_base {
    folder own;
    const folder *dir;  /* own, or that of the checkpoint, or of its single file */
    const char *path;   /* of that folder; borrowed from the checkpoint */
    const char *inside; /* of the checkpoint's folder below it; "": the same */
    size_t inside_nbytes;
    bool is_above; /* a folder was given and the checkpoint found inside */
} manifest_base;

fsdpck_status manifest_base_open(manifest_base *b, const fsdpck_checkpoint *src,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* That of the checkpoint itself, for a manifest in its own folder. */
void manifest_base_of_checkpoint(manifest_base *b, const fsdpck_checkpoint *src);
/* A name in the checkpoint's folder as one in this folder. */
fsdpck_status manifest_base_name(const manifest_base *b, const char *name, text_buf *to,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
void manifest_base_close(manifest_base *b);

#endif
