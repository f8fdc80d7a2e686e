/* sidecars.h: the small files of a trainer's folder that are not weights and do not depend on the
 * ranks (config, tokenizer), which lie in a folder of their own beside the weights
 * (cat_origin.side_folder), or in a folder of safetensors among them:
 *
 *     sidecars side;
 *     sidecars_find(&side, src, SIDECARS_KEPT, err);   // what there is; nothing is read yet
 *     sidecars_add(&side, &out, err);           // after the files of the target
 *     sidecars_copy(&side, &out, cancel, err);
 *     sidecars_release(&side);
 *
 * Copied are regular files of that one folder, not links (but for those of the Hugging Face cache
 * into a model folder), that do not look like weights, within the limits below, each byte for byte;
 * the names of all others are kept for the report.
 */
#ifndef FSDPCK_RUN_SIDECARS_H
#define FSDPCK_RUN_SIDECARS_H

#include "io/output.h"
#include "open/checkpoint.h"

#define SIDECAR_NBYTES_MAX  (UINT64_C(64) << 20)
#define SIDECARS_NBYTES_MAX (UINT64_C(256) << 20)
#define SIDECARS_MAX_COUNT  1024u

typedef struct sidecar {
    char *path; /* below the source: "huggingface/config.json", "config.json" */
    uint64_t nbytes;
    uint64_t crc64; /* once copied */
    size_t index;   /* in the output */
    bool copied;
} sidecar;

typedef struct sidecars {
    folder dir;
    vec files; /* sidecar, sorted by path */
    bool flat; /* SIDECARS_FLAT */
} sidecars;

typedef enum sidecars_policy {
    SIDECARS_NAMED, /* none is copied */
    SIDECARS_KEPT,  /* into a folder of the same name: the output is as the source */
    SIDECARS_FLAT   /* beside the weights: the output is a model folder, as transformers reads */
} sidecars_policy;

/* A source without such a folder has none, unless it is itself a folder of safetensors and the policy is
 * flat. */
fsdpck_status sidecars_find(sidecars *s, const fsdpck_checkpoint *src, sidecars_policy policy,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Its path below the output. */
const char *sidecars_output(const sidecars *s, const sidecar *f);
/* Whether one will be copied to this path below the output. */
bool sidecars_has(const sidecars *s, const char *path);
fsdpck_status sidecars_add(sidecars *s, output *out, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* CHANGED where a file is not what it was. */
fsdpck_status sidecars_copy(sidecars *s, output *out, const cancel_token *cancel,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether a name is one that weights, or an index of them, have. */
bool sidecars_is_weights(const char *name);
/* A zeroed one may be released. */
void sidecars_release(sidecars *s);

#endif
