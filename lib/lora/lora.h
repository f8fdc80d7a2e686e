/* lora.h: adapters of LoRA as PEFT keeps them in a model's state, and their adapter_config.json.
 *
 *     lora_set set;
 *     RETURN_IF(lora_set_find(&cat, inputs, count, false, &budget, &set, err));   // catalogue in, description out
 *     lora_config config;
 *     RETURN_IF(lora_config_read(text, nbytes, &budget, &config, err));
 *     RETURN_IF(lora_set_name_parameters(&set, &cat, &config, err));       // modules of target_parameters
 *     ...
 *     RETURN_IF(lora_config_numbers(&config, path, nbytes, &numbers, err)); // r, alpha, scaling of a module
 *     lora_config_release(&config);
 *     lora_set_release(&set);
 *
 * Names, in a model's state and in adapter_model.safetensors. X is the path of a module, NAME the adapter:
 *
 *     base_model.model.X.lora_A.NAME.weight                   base_model.model.X.lora_A.weight
 *     base_model.model.X.lora_B.NAME.weight, .bias            base_model.model.X.lora_B.weight, .bias
 *     base_model.model.X.lora_embedding_A.NAME, _B            base_model.model.X.lora_embedding_A, _B
 *     base_model.model.X.lora_magnitude_vector.NAME.weight    base_model.model.X.lora_magnitude_vector
 *     base_model.model.X.modules_to_save.NAME.weight          base_model.model.X.weight
 *     base_model.model.X.base_layer.out_proj.lora_A.NAME.weight    the same without .NAME: X is a nn.MultiheadAttention
 *     base_model.model.X.token_adapter.trainable_tokens_delta.NAME      the same without .NAME
 *     base_model.model.X.base_layer.weight, X.original_module.weight    none: of the base model
 *
 * Outer keys precede base_model.model., which adapters that were injected into a model lack. A second
 * parameter of one module has a second wrapper: X.base_layer.lora_A.NAME.weight.
 *
 * Source: peft 0.21.2 (utils/save_and_load.py, tuners/tuners_utils.py, tuners/lora/layer.py).
 */
#ifndef FSDPCK_LORA_LORA_H
#define FSDPCK_LORA_LORA_H

#include "state/catalogue.h"

#define LORA_NONE UINT32_MAX

/* A tensor of the model, under its name without outer keys and wrappers of torch. */
typedef struct lora_input {
    const char *name;
    size_t nbytes;
    uint32_t tensor; /* of the catalogue */
} lora_input;

typedef enum lora_role {
    LORA_ROLE_BASE,     /* of the base model */
    LORA_ROLE_ORIGINAL, /* of the base model: the frozen copy of a module of modules_to_save */
    LORA_ROLE_A,        /* also lora_embedding_A */
    LORA_ROLE_B,        /* also lora_embedding_B */
    LORA_ROLE_A_BIAS,
    LORA_ROLE_B_BIAS,
    LORA_ROLE_MAGNITUDE,
    LORA_ROLE_SAVED,   /* of the trained copy of a module of modules_to_save */
    LORA_ROLE_TOKENS,  /* rows of an embedding */
    LORA_ROLE_FOREIGN, /* of an adapter of another method, or with an unknown name */
} lora_role;

typedef struct lora_tensor {
    uint32_t tensor;  /* of the catalogue */
    uint32_t role;    /* lora_role */
    uint32_t adapter; /* LORA_NONE: of the base model */
    uint32_t module;  /* LORA_NONE: of none */
    /* Texts of lora_set.names. `saved`: the name in adapter_model.safetensors, also of the base model's
     * tensors, as some settings save these too. `base`: the name in the base model without adapters;
     * LORA_NONE: the base model has no such tensor. */
    uint32_t saved, base;
} lora_tensor;

typedef enum lora_kind {
    LORA_LINEAR,
    LORA_EMBEDDING,
    LORA_CONV,      /* A and B have more than two dims */
    LORA_PARAMETER, /* of target_parameters */
    LORA_TOKENS,    /* trainable tokens */
    LORA_SAVED,     /* of modules_to_save: its tensors have the role */
} lora_kind;

/* A module with an adapter. Tensors are indices of lora_set.tensors, or LORA_NONE. */
typedef struct lora_module {
    uint32_t adapter;
    uint32_t path; /* text of lora_set.names, in the base model: "model.layers.0.mlp.up_proj" */
    uint32_t kind; /* lora_kind */
    /* LORA_PARAMETER: the name of the parameter in the module, "gate_up_proj", LORA_NONE if unknown. */
    uint32_t parameter;
    unsigned nesting; /* wrappers of the same module outside this one */
    /* nn.MultiheadAttention: its weight is in_proj_weight. PEFT targets its out_proj with it, by its name: `holder` of that
     * module is the number of this one, LORA_NONE of others. */
    bool is_attention;
    uint32_t holder;
    uint32_t a, b, a_bias, b_bias, magnitude, tokens;
    uint32_t base_weight, base_bias;
} lora_module;

typedef struct lora_set {
    strtab names;
    strtab adapters;    /* names; "" where the tensors have none, as in adapter_model.safetensors */
    vec tensors;        /* lora_tensor, in the order of the inputs */
    vec modules;        /* lora_module */
    strtab module_keys; /* one text for each module */
    strtab wrappers;    /* names of modules of PEFT around others */
    vec by_base;     /* uint32_t by text of `names`: the tensor of the base model, or LORA_NONE */
    bool has_prefix; /* names begin with base_model.model. */
    bool has_base;   /* weights of the base model are among the inputs */
} lora_set;

/* Without adapters the set has no module. Names of inputs are borrowed for the call. Release the set also
 * after a failure. joined: a base model is among the inputs, even if no module shows it. BADINPUT (LORA-PAIR) if two tensors have one place, LIMIT. */
fsdpck_status lora_set_find(const catalogue *c, const lora_input *inputs, size_t count, bool joined,
                            budget *owner, lora_set *set, fsdpck_error *err) FSDPCK_MUST_CHECK;
void lora_set_release(lora_set *set);

/* The lora_role of a tensor by its name alone; outer keys may precede it. */
uint32_t lora_role_of_name(const char *name, size_t nbytes);

size_t lora_adapter_count(const lora_set *set);
size_t lora_module_count(const lora_set *set);
size_t lora_tensor_count(const lora_set *set);
const lora_module *lora_module_at(const lora_set *set, size_t i);
const lora_tensor *lora_tensor_at(const lora_set *set, size_t i);
/* Borrowed until the set is released; "" for LORA_NONE. */
const char *lora_text(const lora_set *set, uint32_t name);
/* Tensor i is a part of a module of modules_to_save that its name does not mark as such, as in adapter_model.safetensors:
 * the bytes of lora_tensor.base that are the path of the module; otherwise 0. */
size_t lora_saved_path(const lora_set *set, size_t i);
/* A tensor of the base model by its name there, as an index of set->tensors; or LORA_NONE. */
uint32_t lora_set_find_base(const lora_set *set, const char *name, size_t nbytes);
/* The catalogue's tensor of an index of set->tensors; CAT_NONE for LORA_NONE. */
uint32_t lora_cat_tensor(const lora_set *set, uint32_t i);

/* ---- weights that are tied to the embedding (lora_head.c) ---- */

/* Whether a path of a module is one that models have for their output projection: "lm_head", "cls.predictions.decoder". */
bool lora_is_head(const char *path, size_t nbytes);
/* Likewise the name of its weight. */
bool lora_is_head_weight(const char *name, size_t nbytes);
/* Whether a name is that of the weight of a module with one of the names, also inside the wrappers of PEFT. */
bool lora_is_weight_of(const char *name, size_t nbytes, const char *const *modules, size_t count);
/* Whether a name is one that models have for the weight of their embedding. Other weights may have it too. */
bool lora_is_embedding_weight(const char *name, size_t nbytes);
/* The bytes of the path of such a module in a name of an adapter; 0: none. *path: its first byte, inside the name. */
size_t lora_head_path(const char *name, size_t nbytes, const char **path);
/* Likewise of the embedding of an encoder or a decoder, which may be that of the model. */
size_t lora_copy_path(const char *name, size_t nbytes, const char **path);

/* ---- adapter_config.json ---- */

typedef enum lora_bias_kind { LORA_BIAS_NONE, LORA_BIAS_ALL, LORA_BIAS_ONLY } lora_bias_kind;

/* A list of names, or a regular expression: then `is_regex`, with one text. */
typedef struct lora_names {
    strtab texts;
    bool is_set; /* the member is not null */
    bool is_regex;
    bool is_all; /* "all-linear", also with is_regex */
} lora_names;

typedef struct lora_pattern lora_pattern;

typedef struct lora_config {
    budget *owner;
    char *text;   /* as read */
    bool is_made; /* set by the caller: no file has it, so a false fan_in_fan_out is unknown */
    size_t nbytes;
    bool has_r, has_alpha;
    uint64_t r;
    double alpha;
    vec rank_pattern, alpha_pattern; /* lora_pattern */
    bool use_rslora, use_dora, fan_in_fan_out, lora_bias;
    uint32_t bias; /* lora_bias_kind */
    lora_names target_modules, target_parameters, modules_to_save, exclude_modules;
    vec layers; /* uint64_t: layers_to_transform; empty: all */
    bool has_layers_pattern;
    bool has_blocks;    /* use_bdlora: lora_B holds its blocks beside each other */
    bool has_tokens;    /* trainable_token_indices is not null */
    strtab token_names; /* its keys, if it is an object */
    bool ties_tokens;   /* ensure_weight_tying */
    char initial[32]; /* init_lora_weights, if it is a text: "pissa" also changes the base model */
    char unmergeable
        [48]; /* the first member that changes the arithmetic of a merge in a way that this
                           * library does not compute, such as layer_replication; "" if none */
} lora_config;

/* BADINPUT (LORA-CONFIG) for a text that is not such a file, UNSUPPORTED (LORA-KIND) for another method
 * than LORA. Release the config also after a failure. */
fsdpck_status lora_config_read(const char *text, size_t nbytes, budget *owner, lora_config *config,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
void lora_config_release(lora_config *config);
/* Whether an adapter with this init_lora_weights starts from a base model that it has changed. */
bool lora_initial_changes_base(const char *initial);

/* The numbers of a module: those of the first key of the pattern that matches its path, or else the ones
 * of the whole config, 0 if that has none. `key`: the path of the module, for a parameter with a dot and
 * its name. USAGE (LORA-CONFIG) if a pattern cannot be matched. */
typedef struct lora_numbers {
    uint64_t r;
    double alpha;
    double scaling; /* alpha / r, or alpha / sqrt(r) */
} lora_numbers;
fsdpck_status lora_config_numbers(const lora_config *config, const char *key, size_t nbytes,
                                  lora_numbers *numbers, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Names the parameters of modules of target_parameters (lora_module.parameter) as far as the config, the
 * tensors of the base model and the shapes determine them. */
fsdpck_status lora_set_name_parameters(lora_set *set, const catalogue *c, const lora_config *config,
                                       fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of a module with trainable tokens, the number of the one whose rows it shares, as PEFT does it in models with tied
 * weights: its own if it has rows of its own. PEFT saves rows once. */
uint32_t lora_tokens_owner(const lora_set *set, const catalogue *c, const lora_config *config,
                           uint32_t module);
/* lora_tokens.c: appends the rows that trainable_token_indices of a config gives for the module `path`. BADINPUT
 * (LORA-CONFIG) if there are none. */
fsdpck_status lora_token_rows(const lora_config *config, const char *path, size_t nbytes, vec *rows,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether PEFT targets a module by this member: its path equals a name or ends with a dot and the name, or
 * the regular expression matches all of it. */
fsdpck_status lora_names_match(const lora_names *names, const char *path, size_t nbytes,
                               bool *matches, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
