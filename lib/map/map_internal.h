/* map_internal.h: the rules of a map, as map_read.c fills them, for the files of map/.
 *
 *     map_read.c        lines and statements
 *     map_words.c       names, numbers, variables, errors
 *     map_pattern.c     patterns of names: read, match, write
 *     map_rule.c        whether the operations of a rule lead from its sources to its targets
 *     map_invert.c      the map in the other direction
 *     map_variables.c   values: config.json, NAME=N
 *     map_arguments.c   values: arguments of the training
 *     map_choose.c      which of several maps fits a model type and names
 *     map_match.c       tensors of a catalogue -> instances of rules
 *     map_stack.c       stacks over one list of modules have the same length
 *     map_layout.c      operations: which element of a source is which element of a target
 *     map_regroup.c     group, ungroup, narrow
 *     map_heads.c       operations that count heads agree on the rows of a head
 *     map_head_dim.c    what else shows the rows of a head: config.json, other tensors
 *     chunk_index.c     the chunks of a tensor that a piece may have elements of
 *     map_adapter.c     the second catalogue
 *     map_adapter_source.c  its source
 *     map_ties.c        tensors that folders of tied models omit
 *     map_table.c       the maps that are built in
 */
#ifndef FSDPCK_MAP_MAP_INTERNAL_H
#define FSDPCK_MAP_MAP_INTERNAL_H

#include "map/map.h"
#include "state/model_ties.h"

#define MAP_CAPTURES_MAX 4u
/* Names that a pattern with alternatives stands for. */
#define MAP_FORMS_MAX 64u
#define MAP_PARTS_MAX 64u
#define MAP_NONE      UINT32_MAX

/* A place in the text of a map; both count from 1. */
typedef struct map_at {
    uint32_t line, column;
} map_at;

/* A number, or a variable. */
typedef struct map_value {
    uint32_t variable; /* MAP_NONE: `number` */
    uint64_t number;
    map_at at;
} map_value;

typedef enum map_part_kind { MAP_TEXT, MAP_NUMBER, MAP_ANY } map_part_kind;

typedef struct map_part {
    map_part_kind kind;
    uint32_t text;    /* MAP_TEXT: id in texts */
    uint32_t capture; /* MAP_NUMBER */
    /* MAP_NUMBER of a target: added to or subtracted from the capture. Of an inverted map, it is in
     * the sources. */
    map_value offset;
    bool subtract;
} map_part;

/* One spelling of a pattern. At most one part is MAP_ANY. Two numbers are never adjacent, nor are a
 * number and MAP_ANY. */
typedef struct map_form {
    uint32_t first_part, count;
} map_form;

typedef struct map_pattern {
    uint32_t first_form, count; /* a target has one form */
    unsigned captures;          /* bit mask */
    bool has_any;
    map_at at;
} map_pattern;

typedef enum map_op_kind {
    MAP_OP_STACK,   /* tensors numbered by a capture -> one tensor with a new first dim */
    MAP_OP_UNSTACK, /* the inverse */
    MAP_OP_CONCAT,  /* the sources -> one tensor */
    MAP_OP_SPLIT,   /* one tensor -> the targets */
    MAP_OP_ROPE,    /* rows of each head: pairs next to each other -> halves */
    MAP_OP_TRANSPOSE,
    MAP_OP_GROUP,   /* parts of groups: all first parts, all second parts, ... -> group by group */
    MAP_OP_UNGROUP, /* the inverse */
    MAP_OP_NARROW,  /* cuts padding: the first indices of a dim */
    MAP_OP_ADD,     /* adds 1 or -1 to each element */
    MAP_OP_UNROPE   /* the inverse of ROPE; only in inverted maps */
} map_op_kind;

typedef struct map_op {
    map_op_kind kind;
    uint32_t capture;   /* STACK, UNSTACK */
    unsigned dim;       /* CONCAT, SPLIT, TRANSPOSE, GROUP, UNGROUP, NARROW */
    unsigned other_dim; /* TRANSPOSE */
    bool subtract;      /* ADD: the value with the opposite sign */
    /* SPLIT: proportions, 0: equal parts. CONCAT: proportions, 0: any. ROPE, UNROPE: the number of
     * heads. GROUP, UNGROUP: the number of groups, then the proportions of their parts. NARROW: the
     * number of indices. ADD: 1, or a switch. */
    uint32_t first_value, count;
    map_at at;
} map_op;

typedef struct map_rule {
    uint32_t first_source, nsources;
    uint32_t first_target, ntargets; /* none: drop, keep or ignore */
    bool keeps;                      /* names stay; for tensors that no other rule takes */
    bool ignores; /* names of the other family: only an inverted map drops them */
    bool loses;   /* drop, of tensors that are expected to be zero */
    uint32_t first_op, nops;
    uint32_t stacked; /* capture that numbers the sources of an instance, or MAP_NONE */
    uint32_t unstacked;
    uint32_t unstacked_inner; /* of the second unstack, or MAP_NONE */
    uint32_t ncaptures;
    uint32_t captures[MAP_CAPTURES_MAX]; /* name ids in texts */
    map_at at, arrow;
} map_rule;

typedef struct map_variable_def {
    uint32_t name;             /* id in texts */
    uint32_t first_key, nkeys; /* of the configuration, by precedence */
    uint32_t found_key;        /* index of the key that set it, MAP_NONE: none */
    bool in_text_config;       /* where it was found */
    bool is_set, by_user;
    bool is_switch; /* only for ADD: 0, or 1 by the user or the arguments of the training */
    uint64_t value;
    uint64_t stated; /* by the first key of config.json, where the user gave the value; 0: absent */
    /* The argument of the training that its first key names. */
    bool has_argument, argument_may_differ;
    uint64_t argument;
    const char *argument_note, *argument_file; /* as in map_argument */
} map_variable_def;

/* `expect`: an argument of the training, and the values that the map converts. */
typedef struct map_expected {
    uint32_t argument;             /* id in texts */
    uint32_t first_value, nvalues; /* ids in texts, in `keys` */
    char found[48];                /* another value, of the training; "": none */
} map_expected;

/* On import, a tensor that no rule makes is another one if the model ties its embeddings. */
typedef struct map_tie {
    uint32_t name, same_as; /* ids in texts */
} map_tie;

struct tensor_map {
    budget *owner;
    strtab texts;
    vec parts;     /* map_part */
    vec forms;     /* map_form */
    vec patterns;  /* map_pattern */
    vec values;    /* map_value */
    vec ops;       /* map_op */
    vec rules;     /* map_rule */
    vec variables; /* map_variable_def */
    vec keys;      /* uint32_t: ids in texts */
    /* `for`: the models that the map is for, and names that their tensors have. */
    vec model_types;             /* uint32_t: ids in texts; empty: the map has no such line */
    uint32_t first_name, nnames; /* in patterns */
    uint32_t for_text;           /* the names of the `for` line: id in texts */
    text_buf dropped;            /* the names of the `drop` lines */
    text_buf needed;             /* those of the `needs` lines */
    vec ties;                    /* map_tie */
    model_ties_config stated;    /* whether config.json ties the embeddings */
    uint64_t head_dim;           /* of config.json, at the top, else in text_config; 0: absent */
    bool head_dim_at_top;
    map_config_sizes top, nested; /* of config.json, and of its text_config */
    uint64_t head_rows;           /* rows of a head, by the arguments; 0: absent */
    const char *head_rows_from;   /* that argument */
    char model_type[64], nested_model_type[64]; /* of config.json, likewise; "": absent */
    vec refused;          /* uint32_t: the keys of the `refuse` lines, ids in texts */
    uint32_t refused_key; /* an argument of the training that is one of them, and true */
    vec expected;         /* map_expected */
    const tensor_map
        *forward; /* of an inverted map: the one that it inverts; else NULL. Borrowed. */
};

/* map_words.c */

/* One word of a line. */
typedef struct map_word {
    const char *text;
    size_t nbytes;
    map_at at;
    bool comma; /* a comma follows */
} map_word;

/* USAGE (MAP-SYNTAX). found: NULL for the end of the line. */
fsdpck_status map_syntax_error(map_at at, const char *expected, const char *found,
                               size_t found_nbytes, fsdpck_error *err);

bool map_word_is(const map_word *w, const char *text);
bool map_is_name(const char *text, size_t nbytes);
/* A number of at most 2^40, without leading zeros. */
bool map_parse_number(const char *text, size_t nbytes, uint64_t *number);
/* The variable of this name, added if there is none. */
fsdpck_status map_find_variable(tensor_map *m, const char *name, size_t nbytes, uint32_t *index,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A number or the name of a variable. */
fsdpck_status map_read_value(tensor_map *m, const char *text, size_t nbytes, map_at at,
                             const char *expected, map_value *value,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* map_arguments.c: the words of a line. end_column: of its last word. */
fsdpck_status map_read_refuse(tensor_map *m, const map_word *words, uint32_t count,
                              uint32_t end_column, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status map_read_expect(tensor_map *m, const map_word *words, uint32_t count,
                              uint32_t end_column, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* map_pattern.c: appends the pattern of a word to m->patterns. Captures are found in, or added to,
 * those of the rule. */
fsdpck_status map_read_pattern(tensor_map *m, map_rule *rule, const map_word *w, bool is_target,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The parts of a name that a pattern captures. */
typedef struct map_captures {
    uint64_t numbers[MAP_CAPTURES_MAX];
    const char *any;
    size_t any_nbytes;
    unsigned found; /* bit mask of numbers */
    const map_value
        *unset; /* a variable without a value, so that the numbers are unknown; or NULL */
} map_captures;

bool map_pattern_match(const tensor_map *m, const map_pattern *p, const char *name, size_t nbytes,
                       map_captures *captures);
/* Whether all its spellings show where each number and the text of '*' begin and end. */
bool map_pattern_is_clear(const tensor_map *m, const map_pattern *p);
/* Whether it adds to a number. */
bool map_pattern_adds(const tensor_map *m, const map_pattern *p);
/* The name of a target. BADINPUT (MAP-SHAPE) for a number below 0. */
fsdpck_status map_pattern_write(const tensor_map *m, const map_pattern *p,
                                const map_captures *captures, text_buf *name,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* map_head_dim.c */

/* Whether a variable is a number of heads of query, or of key and value. */
bool map_counts_heads(const tensor_map *m, const map_variable_def *v);
/* The rows of a head by config.json or the arguments of the training; 0: unknown. *from: which of them. */
uint64_t map_head_dim(const tensor_map *m, const char **from);

/* map_rule.c: a word that is no name in braces of the rule. */
fsdpck_status map_capture_error(const tensor_map *m, const map_rule *rule, const map_word *w,
                                fsdpck_error *err);
/* Fills stacked and unstacked. */
fsdpck_status map_check_rule(const tensor_map *m, map_rule *rule,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

bool map_value_is_set(const tensor_map *m, const map_value *v);
/* The constant of an ADD: 1, -1 or 0. */
int8_t map_added(const tensor_map *m, const map_op *op);
/* USAGE (MAP-VARIABLE) if the variable has no value. */
fsdpck_status map_get_value(const tensor_map *m, const map_value *v, uint64_t *value,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
