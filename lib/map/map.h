/* map.h: a tensor map, fsdpck-map(5): rules from the names and layouts of one family of models to those
 * of another.
 *
 *     tensor_map *m;
 *     RETURN_IF(map_read(text, nbytes, &budget, &m, err));
 *     RETURN_IF(map_read_config(m, config, config_nbytes, err));     // config.json
 *     RETURN_IF(map_set_variable(m, "heads=32", err));
 *     map_take_argument(m, &argument);                               // each, of the training
 *     RETURN_IF(map_apply_arguments(m, &used, err));
 *     ... map_adapter.h applies it to a catalogue ...
 *     map_free(m);
 *
 * Every rule is a bijection of elements, apart from `drop`, so that the same rules can be applied in
 * the other direction: map_invert.
 */
#ifndef FSDPCK_MAP_MAP_H
#define FSDPCK_MAP_MAP_H

#include <stdbool.h>

#include "base/alloc.h"

typedef struct tensor_map tensor_map;

/* USAGE (MAP-SYNTAX) with line, column, expected and found. *out is freed with map_free. */
fsdpck_status map_read(const char *text, size_t nbytes, budget *owner, tensor_map **out,
                       fsdpck_error *err) FSDPCK_MUST_CHECK;
void map_free(tensor_map *m);

/* The variables of the rules: their names, and their values once set. */
size_t map_variable_count(const tensor_map *m);
const char *map_variable(const tensor_map *m, size_t index, bool *is_set, uint64_t *value);

/* "NAME=N"; replaces a value of the configuration. USAGE (MAP-VARIABLE) for another form and for a
 * name that no rule uses. */
fsdpck_status map_set_variable(tensor_map *m, const char *text,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Sets variables from the keys of a model's config.json, at its top or in its text_config. Keys that
 * no rule uses are ignored. BADINPUT (MAP-CONFIG) if it is not JSON, or a value is no positive integer. */
fsdpck_status map_read_config(tensor_map *m, const char *text, size_t nbytes,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* BADINPUT (EXPORT-CONFIG) if the user gave a number of heads other than that of config.json. */
fsdpck_status map_check_set(const tensor_map *m, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Keys of config.json for the number of experts. */
#define MAP_EXPERT_KEYS 3u
#define MAP_EXPERT_KEY_NAMES {"num_experts", "num_local_experts", "n_routed_experts"}

/* Sizes of a model in config.json; 0: absent. */
typedef struct map_config_sizes {
    uint64_t hidden_size, num_attention_heads, num_hidden_layers, vocab_size;
    uint64_t zero_expert_num;
    uint64_t experts[MAP_EXPERT_KEYS]; /* by key */
} map_config_sizes;
/* Each at the top, else in text_config. */
map_config_sizes map_sizes(const tensor_map *m);
/* Whether a variable has its value from config.json. */
bool map_uses_config(const tensor_map *m);
/* Whether names depend on num_hidden_layers, as those of layers that predict further tokens. */
bool map_counts_layers(const tensor_map *m);

/* A number, or 0 or 1, that the training run was started with. */
typedef struct map_argument {
    const char *key; /* as in config.json, or its own name */
    size_t key_nbytes;
    uint64_t value;
    bool may_differ;  /* from config.json, as a vocabulary with padding */
    const char *note; /* a constant that follows the value in `used`; NULL: none */
    /* The file with the number, a constant, which a value by the user must not contradict; NULL: the arguments of the
     * training. */
    const char *file;
} map_argument;
/* Has no effect before map_apply_arguments. A later argument with the same key counts. */
void map_take_argument(tensor_map *m, const map_argument *argument);
/* The rows of a head, by an argument. `from` is a constant: "'kv_channels' of the training". */
void map_take_head_dim(tensor_map *m, uint64_t rows, const char *from);
/* An argument as text: "true", "false", a number, or a text; for `expect`. Likewise. */
void map_take_argument_text(tensor_map *m, const char *key, size_t key_nbytes, const char *text,
                            size_t nbytes);
/* Gives the variables without a value those of the arguments, and appends "heads=32, kv_heads=8" to
 * `used`. UNSUPPORTED (MAP-ARGUMENTS) for one that a `refuse` or an `expect` line excludes, BADINPUT (MAP-ARGUMENTS) for
 * one that contradicts config.json or, of a file, the user. */
fsdpck_status map_apply_arguments(tensor_map *m, text_buf *used,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Makes `m` the map in the other direction: from the targets of its rules to their sources, each with
 * the first of its alternatives. `forward` was read from the same text; it is borrowed, and must have
 * the same values. UNSUPPORTED (MAP-ONE-WAY) for a rule without an inverse. */
fsdpck_status map_invert(tensor_map *m, const tensor_map *forward,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The names that `drop` lists, as in the text of the map, separated by ", "; "" without `drop`. */
const char *map_dropped_names(const tensor_map *m);

#endif
