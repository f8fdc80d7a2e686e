/* sidecars.h: the small files of a trainer's folder that are not weights and do not depend on the
 * ranks (config, tokenizer), which lie in a folder of their own beside the weights
 * (cat_origin.side_folder):
 *
 *     sidecars side;
 *     sidecars_find(&side, src, copied, err);   // what there is; nothing is read yet
 *     sidecars_add(&side, &out, err);           // after the files of the target
 *     sidecars_copy(&side, &out, cancel, err);
 *     sidecars_release(&side);
 *
 * Copied are regular files of that one folder, not links, that do not look like weights, within
 * the limits below, each byte for byte; the names of all others are kept for the report.
 */
#ifndef FSDPCK_SIDECARS_H
#define FSDPCK_SIDECARS_H

#include "base/output.h"
#include "transform.h"

#define SIDECAR_NBYTES_MOST  (UINT64_C(64) << 20)
#define SIDECARS_NBYTES_MOST (UINT64_C(256) << 20)
#define SIDECARS_MOST        1024u

typedef struct sidecar {
    char *path; /* "huggingface/config.json", below both folders */
    uint64_t nbytes;
    size_t index; /* in the output */
    bool copied;
} sidecar;

typedef struct sidecars {
    folder dir;
    vec files; /* sidecar, sorted by path */
} sidecars;

/* `copied` false: all are only named. A source without such a folder has none. */
fsdpck_status sidecars_find(sidecars *s, const fsdpck_checkpoint *src, bool copied,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether one of this path will be copied. */
bool sidecars_has(const sidecars *s, const char *path);
fsdpck_status sidecars_add(sidecars *s, output *out, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* CHANGED where a file is not what it was. */
fsdpck_status sidecars_copy(const sidecars *s, output *out, const cancel_token *cancel,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A zeroed one may be released. */
void sidecars_release(sidecars *s);

#endif
