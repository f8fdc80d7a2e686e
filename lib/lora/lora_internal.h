/* lora_internal.h: shared by the files of this folder. */
#ifndef FSDPCK_LORA_LORA_INTERNAL_H
#define FSDPCK_LORA_LORA_INTERNAL_H

#include "lora/lora_check.h"

/* The parts of a tensor's name, each inside the name. */
typedef struct lora_name {
    uint32_t role; /* lora_role; BASE also for names without a mark of PEFT */
    bool is_embedding;
    const char *name; /* after base_model.model. */
    size_t nbytes;
    size_t wrapped_nbytes; /* of the path to the module that PEFT wrapped; 0: none */
    const char *adapter;   /* "" with 0 bytes where the name has none */
    size_t adapter_nbytes;
    const char *mark; /* "lora_A", or the key below a wrapper that is saved: "weight" */
    size_t mark_nbytes;
    const char *tail; /* ".weight", ".bias", "" */
} lora_name;

/* lora_name.c. Names of other methods are FOREIGN only after base_model.model. */
void lora_name_parse(const char *name, size_t nbytes, lora_name *n);
/* Where a name continues after base_model.model.; 0: it has no such part. */
size_t lora_name_prefix(const char *name, size_t nbytes);
/* Appends the name in adapter_model.safetensors. */
void lora_name_append_saved(const lora_name *n, text_buf *out);
/* Appends the name without the segments that wrappers add. */
void lora_name_append_base(const strtab *wrappers, const char *name, size_t nbytes, text_buf *out);
/* The next segment at *at, which then is the index after its dot; false at the end. */
bool lora_name_next(const char *name, size_t nbytes, size_t *at, size_t *begin, size_t *end);

/* lora_module.c: number of experts of a parameter, 1 where it is no stack, 0 where the base model is elsewhere. */
uint64_t lora_module_experts(const lora_set *set, const catalogue *c, const lora_module *m);
/* lora_module.c: the path by which names and patterns of the config find the module, in place of the text. */
fsdpck_status lora_module_key(const lora_set *set, const lora_module *m, text_buf *key,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The arguments of lora_check_config. */
typedef struct lora_config_check {
    const lora_set *set;
    uint32_t adapter;
    size_t own;
    const lora_config *config;
    lora_lost *lost; /* or NULL */
    lora_found_fn found;
    void *ctx;
} lora_config_check;

/* Hands a fault to the caller of the check. */
#define LORA_REPORT(check, err, finding, ...)                     \
    do {                                                          \
        fsdpck_error fault_ = FSDPCK_ERROR_INIT;                  \
        (void)FAIL_WITH(&fault_, BADINPUT, finding, __VA_ARGS__); \
        RETURN_IF((check)->found((check)->ctx, &fault_, err));    \
    } while (0)

/* lora_targets.c: as re.match(r".*?\.[^.]*\.(\d+)\.", path): the first number with two segments before it and one after it. */
bool lora_layer_of(const char *path, size_t nbytes, uint64_t *layer);
/* lora_targets.c: the member by which the config does not target a module; NULL: it does. */
fsdpck_status lora_find_contradiction(const lora_config *c, const char *path, size_t nbytes,
                                      const char **member, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* lora_targets.c: whether modules_to_save names the module. PEFT compares ends of texts, also inside a segment: "norm" names
 * "input_layernorm" too. */
bool lora_is_saved_name(const lora_config *c, const char *path, size_t nbytes);
/* lora_targets.c: the bytes of the outermost module around `name`, itself too if `whole`, that modules_to_save names; 0:
 * none. */
size_t lora_saved_around(const lora_config *c, const char *name, size_t nbytes, bool whole);

/* lora_targets.c: whether no module has an adapter for a name of target_modules that is one of output projections. */
bool lora_has_unmatched_head(const lora_set *set, const lora_config *config);
/* lora_targets.c: likewise of modules_to_save; `saved`: names of its tensors that the adapter has. */
bool lora_has_unsaved_head(const lora_config *config, const strtab *saved);
/* lora_targets.c: whether the path before the first number of a module is that of the encoder where `stacks` has the same one
 * of the decoder, or the other way round. */
bool lora_is_other_half(const strtab *stacks, const char *path, size_t nbytes);

/* lora_layers.c: appends a path with '#' for its numbers. Returns the bytes of `path` to the end of the last number. */
size_t lora_append_template(const char *path, size_t nbytes, text_buf *out);
/* lora_layers.c: whether the numbers of `a` come before those of `b`; both have one template. */
bool lora_comes_before(const char *a, const char *b);
/* The first number of a path, as the layer of a stack of layers. */
typedef struct lora_layer_number {
    size_t begin;      /* of the number in the path: what precedes it names the stack */
    uint64_t layer;    /* UINT64_MAX: larger than any */
    unsigned nnumbers; /* of the whole path; 0: in no stack */
} lora_layer_number;
lora_layer_number lora_first_number(const char *path, size_t nbytes);
/* lora_layers.c: whether a path without numbers is in the model that has one of the stacks: "bert.embeddings.word_embeddings"
 * for "bert.encoder.layer.". */
bool lora_is_outside(const strtab *stacks, const char *path, size_t nbytes);

/* lora_biases.c: biases that the config names and the adapter lacks. saved: names in the base model of tensors that the
 * adapter replaces; stacks: of its modules. */
fsdpck_status lora_check_biases(const lora_config_check *check, const strtab *saved,
                                const strtab *stacks, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* lora_lacking.c: tensors that the config names and the adapter lacks. */
fsdpck_status lora_check_lacking(const lora_config_check *check,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* lora_parameters.c: whether a text of target_parameters may name a parameter of the module `path`, and its name there,
 * borrowed from the config. */
bool lora_target_leaf(const lora_config *config, uint32_t target, const char *path, size_t nbytes,
                      const char **leaf, size_t *leaf_nbytes);

/* lora_extract.c: the lora_bias_kind of an adapter, of the config or, without one, of the tensors. */
uint32_t lora_bias_of(const lora_set *set, const lora_config *config);

/* One compiled key of a pattern, with its value. */
struct lora_pattern {
    uint32_t key; /* of the order in the file */
    double value;
    void *code; /* pcre2_code */
};

/* lora_pattern.c: re.match(r"(.*\.)?(KEY)$", path), or re.fullmatch(KEY, path) if `whole`. */
fsdpck_status lora_pattern_compile(const char *key, size_t nbytes, bool whole, void **code,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status lora_pattern_match(const void *code, const char *path, size_t nbytes, bool *matches,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
void lora_pattern_free(void *code);

#endif
