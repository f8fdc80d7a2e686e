/* model_config.h: the small files of a model folder, as transformers reads it: config.json and those
 * that are copied beside the weights.
 *
 *     model_config config;
 *     RETURN_IF(model_config_read(&base->probe.dir, &config, err));
 *     config.model_type, config.ties
 *     model_config_release(&config);      // also after a failure
 *
 * The folder is untrusted. Only regular files directly inside it are opened, and links of the Hugging
 * Face cache ("../../blobs/HASH"). Other links may lead to any file.
 */
#ifndef FSDPCK_OPEN_MODEL_CONFIG_H
#define FSDPCK_OPEN_MODEL_CONFIG_H

#include "io/file.h"
#include "state/model_ties.h"

/* Real ones have some KB. */
#define MODEL_CONFIG_NBYTES_MAX ((uint64_t)16 << 20)

typedef enum model_number {
    MODEL_VOCAB_SIZE,
    MODEL_HIDDEN_SIZE,
    MODEL_HIDDEN_LAYERS,
    MODEL_KV_SHARED_LAYERS, /* the last ones use keys and values of others, and have no weights for them */
    MODEL_ENCODER_LAYERS,
    MODEL_DECODER_LAYERS,
    MODEL_SPEECH_LAYERS,       /* of SeamlessM4T's encoder of speech */
    MODEL_UNIT_ENCODER_LAYERS, /* of its model for units */
    MODEL_UNIT_DECODER_LAYERS,
    MODEL_STACK_LAYERS, /* of each of several stacks */
    MODEL_INTERMEDIATE_SIZE,
    MODEL_HEADS,
    MODEL_KEY_HEADS,
    MODEL_HEAD_DIM,
    MODEL_IN_FEATURES, /* of a Dense of sentence-transformers */
    MODEL_OUT_FEATURES,
    MODEL_NUMBERS
} model_number;

typedef struct model_config {
    char *text; /* config.json; NULL: the folder has none */
    size_t nbytes;
    bool has_class_name;              /* "_class_name", of a component of diffusers */
    bool has_diffusers_version;       /* "_diffusers_version" */
    char model_type[64];              /* "llama"; "" if it is absent or longer */
    model_ties ties;                  /* as transformers reads it */
    bool ties_by_default;             /* by the model type: no member states it */
    model_ties_config stated_ties;
    bool is_quantized; /* has a quantization_config */
    bool has_auto_map; /* names a class of its own: model_type may be that of another */
    /* LLaVA trained the projector alone, and saves it alone: "tune_mm_mlp_adapter" */
    bool has_only_projector;
    /* Its weight_block_size: at the top, else in text_config. 0: absent or null. */
    uint64_t block[2];
    bool bad_block; /* not two positive numbers */
    /* At the top, else in text_config. Absent: "" or 0. */
    char dtype[32]; /* "dtype" or "torch_dtype" */
    uint64_t numbers[MODEL_NUMBERS];
    /* Their members: "hidden_size", or another that families have for it, such as "n_embd". Absent: NULL. */
    const char *number_keys[MODEL_NUMBERS];
    size_t number_ranks[MODEL_NUMBERS]; /* the lower has precedence */
} model_config;

/* BADINPUT (MAP-CONFIG, FILE-TYPE), IO, LIMIT. */
fsdpck_status model_config_read(const folder *dir, model_config *config,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same of a file of any name. */
fsdpck_status model_config_read_file(const char *path, model_config *config,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same of a text, which is copied. */
fsdpck_status model_config_read_text(const char *text, size_t nbytes, model_config *config,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
void model_config_release(model_config *config);

/* Links of the Hugging Face cache to follow: none, those of a snapshot, or those of a folder inside a snapshot. */
typedef enum cache_links { CACHE_LINKS_NONE, CACHE_LINKS, CACHE_LINKS_INSIDE } cache_links;

/* Opens file `name` of the folder. */
fsdpck_status model_file_open(const folder *dir, const char *name, cache_links links, file *f,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
