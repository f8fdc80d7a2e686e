/* hf_choice.h: which safetensors files of a folder are its model, and its index. */
#ifndef FSDPCK_HF_CHOICE_H
#define FSDPCK_HF_CHOICE_H

#include "formats/format.h"
#include "formats/safetensors/shard_name.h"

bool hf_choice_is_index(const char *name);
/* 'model.safetensors.index.fp16.json': of a variant of the weights. */
bool hf_choice_is_variant(const char *name);
/* 'model.fp16.safetensors' of 'model.safetensors'. */
bool hf_choice_is_variant_of(const char *name, const char *single);
/* The index of the folder, or NULL. */
fsdpck_status hf_choice_index(const probe_input *in, const char **name,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The files that are read without an index: only the single file, as in transformers; otherwise the numbered files, if they belong
 * to one model; otherwise all. */
typedef struct hf_choice {
    const char *alone;
    const char *family; /* one file of the numbered ones */
    const char *other;  /* one of another family, or NULL */
    shard_name family_parts;
    size_t families;
    bool has_visible; /* then no hidden file is read */
} hf_choice;

void hf_choice_survey(const probe_input *in, hf_choice *c);
/* Whether the entry is read. */
bool hf_choice_has(const hf_choice *c, const char *name);

#endif
