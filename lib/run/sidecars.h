/* sidecars.h: copies a trainer's small files that are not weights and do not depend on the ranks,
 * such as config and tokenizer. They lie in their own folder beside the weights
 * (cat_origin.side_folder), or among the weights in a folder of safetensors:
 *
 *     sidecars side;
 *     sidecars_find(&side, src, SIDECARS_KEPT, err);   // lists the files; reads none
 *     sidecars_add(&side, &out, err);           // after the files of the target
 *     sidecars_copy(&side, &out, cancel, err);
 *     sidecars_release(&side);
 *
 * Only complete regular files of that folder are copied, of the kinds that belong to a model, byte
 * for byte and within the limits below. Links are not copied, except those of the Hugging Face cache into a
 * model folder. The names of all other files are kept for the report.
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
    char *text;  /* contents that replace those of the file; NULL: the file's own */
    bool inside; /* of a folder inside, also in the output: `path` */
} sidecar;

typedef struct sidecars {
    folder dir;
    vec files;       /* sidecar, sorted by path */
    bool flat;       /* SIDECARS_FLAT */
    bool of_like;    /* of the model folder of --like, not of the source: like_files.h */
    uint64_t nbytes; /* of those that are copied */
} sidecars;

typedef enum sidecars_policy {
    SIDECARS_NAMED, /* none is copied */
    SIDECARS_KEPT,  /* into a folder of the same name: the output is as the source */
    SIDECARS_FLAT   /* beside the weights: the output is a model folder, as transformers reads */
} sidecars_policy;

void sidecars_init(sidecars *s, bool flat);
/* Adds a file of s->dir, to be copied if `wanted`. *copied: and if it is a regular file within the
 * limits. */
fsdpck_status sidecars_add_file(sidecars *s, const char *name, bool wanted, bool *copied,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds a regular file of at most 1 MiB in a folder inside: `dir`, of this name. */
fsdpck_status sidecars_add_inside(sidecars *s, const folder *dir, const char *folder_name,
                                  const char *name, bool *copied,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* "tokenizer.model.v7", of Mistral. */
bool sidecars_is_versioned_tokenizer(const char *name);
/* Adds a file of the checkpoint's own folder that is copied whatever its kind is, if it is a regular file within the
 * limits. After sidecars_find, which found none. */
fsdpck_status sidecars_add_state(sidecars *s, const fsdpck_checkpoint *src, const char *name,
                                 bool *copied, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds a file with this text instead of its own. */
fsdpck_status sidecars_add_text(sidecars *s, const char *name, const text_buf *text,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Finds none without such a folder, unless the policy is flat and the source is a folder of safetensors, or
 * has a folder above. */
fsdpck_status sidecars_find(sidecars *s, const fsdpck_checkpoint *src, sidecars_policy policy,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Copies config.json with another dtype (torch's name, NULL: its own), if it has one, and without its
 * quantization_config. */
fsdpck_status sidecars_edit_config(sidecars *s, const char *to, bool unquantize,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether a config.json is copied, and it is that of a model of diffusers. */
void sidecars_get_library(const sidecars *s, bool *found, bool *of_diffusers);
/* Its path below the output. */
const char *sidecars_output(const sidecars *s, const sidecar *f);
/* Whether one will be copied to this path below the output. */
bool sidecars_has(const sidecars *s, const char *path);
fsdpck_status sidecars_add(sidecars *s, output *out, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* CHANGED if a file was modified since sidecars_find. */
fsdpck_status sidecars_copy(sidecars *s, output *out, const cancel_token *cancel,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the last part of a path is a name of weights or of their index. */
bool sidecars_is_weights(const char *path);
/* Also accepts a zeroed struct. */
void sidecars_release(sidecars *s);

#endif
