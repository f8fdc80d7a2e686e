/* rekey_internal.h: internals shared by the rekey*.c files.
 *
 *     rekey.c         finds the optimizers and their entries
 *     rekey_groups.c  reads param_groups: parameters and their order
 *     rekey_match.c   maps numbers to parameters
 *     rekey_unique.c  ... by shapes, if these leave one assignment
 *     rekey_order.c   ... in the order of the model
 *     rekey_shape.c   candidate parameters of a number
 *     rekey_foreign.c optimizers whose shapes identify nothing
 *     rekey_check_conflicts.c  optimizers with the same parameter
 *     rekey_check_keys.c  state and hyperparameters that would be lost
 *     rekey_number.c  numbers for names
 *     rekey_write.c   names and paths, and objects
 *     rekey_root.c    the nested root
 *     rekey_optimizer.c  elements of paths, labels, errors
 */
#ifndef FSDPCK_STATEDICT_REKEY_INTERNAL_H
#define FSDPCK_STATEDICT_REKEY_INTERNAL_H

#include <stdbool.h>

#include "base/alloc.h"
#include "statedict/rekey.h"

#define REKEY_NONE          UINT32_MAX
#define REKEY_POSITIONS_MAX (1u << 22)

typedef enum rekey_kind {
    REKEY_STATE,     /* of a parameter */
    REKEY_STATE_ALL, /* an object that is the whole `state` */
    REKEY_HYPER,     /* a hyperparameter of a group; flattened: of a parameter */
    REKEY_PARAMS,
    REKEY_NAMES,     /* param_names */
    REKEY_GROUPS_ALL /* an object that is the whole list of groups (torch up to 2.3) */
} rekey_kind;

/* A tensor or object of an optimizer. */
typedef struct rekey_entry {
    uint32_t index; /* in the catalogue */
    uint32_t owner; /* in rekey.optimizers */
    uint32_t at;    /* position of the parameter, REKEY_NONE: unknown; of a group its list index */
    uint32_t key;   /* HYPER: text id of the part after it; STATE: bytes of the label */
    uint8_t kind;
    bool is_object;
} rekey_entry;

/* A parameter of an optimizer, in the order in which the groups list them. */
typedef struct rekey_position {
    uint32_t name;                 /* text id of the clean FQN, REKEY_NONE */
    uint32_t written;              /* text id of the name as it is written, REKEY_NONE */
    uint32_t param;                /* in rekey_order.params, REKEY_NONE */
    uint32_t number;               /* the new number */
    uint32_t first_state, nstates; /* in rekey_optimizer.states */
    bool has_objects;              /* its state has more than tensors and None */
    bool open;                     /* `param` is one of several parameters of its shape */
    bool joined;                   /* of several ranks: its order is not known (cat_tensor.joined) */
} rekey_position;

typedef struct rekey_group {
    uint32_t index;         /* in the list of groups */
    uint32_t first, count;  /* in rekey_optimizer.members */
    uint32_t params, names; /* objects, CAT_NONE */
    value whole;            /* of REKEY_GROUPS_ALL: its dict */
    value new_params;       /* list */
} rekey_group;

typedef struct rekey_optimizer {
    uint32_t prefix; /* text id: "optim." */
    uint32_t depth;  /* path elements of the prefix */
    bool flat;
    optim_keys form;
    bool same;        /* no change needed */
    bool settled;     /* members are in the order of a description */
    bool inferred;    /* no recorded names identify its numbers */
    value sample;     /* a path that begins with the prefix's elements */
    strtab labels;    /* ids are positions */
    vec positions;    /* rekey_position */
    vec members;      /* uint32_t: positions, by group */
    vec groups;       /* rekey_group */
    vec states;       /* uint32_t: tensors except scalars, by position */
    uint32_t unknown; /* states of parameters that are in no group */
} rekey_optimizer;

typedef struct rekey {
    catalogue *cat;
    const rekey_order *order;
    optim_keys to;
    const logger *log;
    strtab texts;
    strtab known;   /* names of order->params */
    vec known_at;   /* uint32_t: its index there, by id in `known`; of a tie its first */
    vec known_own;  /* the same, but each name of a tie has its own */
    bool has_model; /* some of order->params are the model's */
    vec optimizers; /* rekey_optimizer */
    vec entries;    /* rekey_entry */
    uint8_t *mine;  /* by tensor: it belongs to an optimizer */
    size_t mine_count;
} rekey;

#define REKEY_OPTIMIZER(r, i) VEC_AT(&(r)->optimizers, rekey_optimizer, i)
#define REKEY_ENTRY(r, i)     VEC_AT(&(r)->entries, rekey_entry, i)
#define REKEY_POSITION(o, i)  VEC_AT(&(o)->positions, rekey_position, i)
#define REKEY_GROUP(o, i)     VEC_AT(&(o)->groups, rekey_group, i)
#define REKEY_MEMBER(o, i)    VEC_AT(&(o)->members, uint32_t, i)

/* --- rekey_optimizer.c --- */

/* Text of a path element; digits of an int are written to `digits`. */
const char *rekey_element(const catalogue *c, value v, char digits[24], size_t *nbytes);
/* Whether the element is a str with this text. */
bool rekey_is(const catalogue *c, value path, size_t i, const char *text);
/* MODEL-OPTIM or another finding, with the optimizer as the tensor, and the next step. */
fsdpck_status rekey_fail(const rekey *r, const rekey_optimizer *o, fsdpck_status status,
                         fsdpck_finding_id finding, fsdpck_error *err, const char *fmt, ...)
    PRINTF_LIKE(6, 7);
/* The groups that a description lists of this optimizer; NULL. */
const optim_list *rekey_described(const rekey *r, const rekey_optimizer *o);
/* The new name or number of a parameter, as text. */
void rekey_label(const rekey *r, const rekey_optimizer *o, uint32_t position, text_buf *out);

/* --- rekey_groups.c --- */

/* Fills positions, members, groups, form from the entries of groups. */
fsdpck_status rekey_groups_read(rekey *r, uint32_t owner, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Flattened: builds groups from the parameters. */
fsdpck_status rekey_groups_make(rekey *r, uint32_t owner, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- rekey_match.c --- */

/* Candidate parameters of numbers, and the assignments so far. */
typedef struct rekey_matching {
    rekey *r;
    rekey_optimizer *o;
    vec candidates; /* uint32_t: in order->params */
    uint8_t *taken; /* by candidate */
    /* By position: first and last candidate; rekey_unique.c: low is the parameter. */
    uint32_t *low, *high;
    uint8_t *fixed; /* by position */
    bool lenient;   /* the order is given: only contradictions are errors */
    bool tentative; /* several candidates are not an error */
    uint64_t steps;
} rekey_matching;

/* A search that exceeds this number of steps gives up. */
#define REKEY_STEPS_MAX (UINT64_C(1) << 31)

static inline const rekey_param *rekey_candidate(const rekey_matching *m, uint32_t i)
{
    return &m->r->order->params[*VEC_AT(&m->candidates, const uint32_t, i)];
}

/* Fills names of positions by number. tentative: positions with several candidates are `open` and
 * have the name of one of them, or none. */
fsdpck_status rekey_match(rekey *r, uint32_t owner, bool tentative,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- rekey_foreign.c --- */

/* What shapes of state say of the parameters. */
typedef enum rekey_shapes {
    REKEY_SHAPES_KNOWN,    /* those of torch's optimizers */
    REKEY_SHAPES_UNKNOWN,  /* hyperparameters of other optimizers */
    REKEY_SHAPES_PROJECTED /* state of other shapes than the parameter's */
} rekey_shapes;

/* *key: a key that shows it, if not KNOWN. */
rekey_shapes rekey_shapes_of(const rekey *r, uint32_t owner, text_buf *key);
/* MODEL-NEEDED. */
fsdpck_status rekey_fail_foreign(const rekey_matching *m, const char *key,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Gives the numbers of one group all parameters in order, whatever their shapes; false if their
 * counts differ. */
bool rekey_match_all(rekey_matching *m);

/* --- rekey_unique.c, rekey_order.c --- */

/* Fill `param` of all positions. BADINPUT: MODEL-OPTIM (no assignment), MODEL-NEEDED (several). */
fsdpck_status rekey_match_unique(rekey_matching *m, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status rekey_match_order(rekey_matching *m, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* rekey_order.c: warns if shapes alone assigned the numbers, in an order that optimizers rarely have:
 * one of the parameters may be outside the checkpoint. */
void rekey_warn_order(const rekey *r, const rekey_optimizer *o);

/* --- rekey_check_conflicts.c --- */

/* Call after all are matched: no two optimizers may have the same parameter unless their names are
 * recorded. BADINPUT (MODEL-NEEDED); tentative: their positions become open instead. */
fsdpck_status rekey_check_conflicts(rekey *r, bool tentative, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Marks all its parameters as unknown. */
void rekey_mark_unknown(rekey_optimizer *o);

/* --- rekey_check_keys.c --- */

/* Parameters of the model that no group lists, where ranks had different parameters: the groups are
 * those of one rank. UNSUPPORTED (MODEL-OPTIM). */
fsdpck_status rekey_check_strays(rekey *r, uint32_t owner, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Parts of a flattened key's value, which no group would have. UNSUPPORTED (MODEL-OPTIM). */
fsdpck_status rekey_check_flat(const rekey *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- rekey_shape.c --- */

/* Whether the parameter fits all of the state. */
bool rekey_fits(rekey_matching *m, uint32_t position, const rekey_param *param);
/* Whether state of known kinds permits it. */
bool rekey_may_be(rekey_matching *m, uint32_t position, const rekey_param *param);
/* The only possible shape of its parameter; NULL if unknown. */
const uint64_t *rekey_shape_of(rekey_matching *m, uint32_t position, unsigned *ndim);
void rekey_print_shape(unsigned ndim, const uint64_t *shape, text_buf *out);
fsdpck_status rekey_no_match(const rekey_matching *m, uint32_t position, fsdpck_error *err);

/* --- rekey_number.c --- */

/* Converts a name to the model's form, without wrapper parts, and finds its parameter. */
fsdpck_status rekey_clean(const rekey *r, const char *text, size_t nbytes, text_buf *clean,
                          uint32_t *param, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Fills `written` of all positions that have a name. */
fsdpck_status rekey_names_write(rekey *r, rekey_optimizer *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* For a form with names: fills name and param of each position from its label. */
fsdpck_status rekey_names_clean(rekey *r, rekey_optimizer *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Converts numbers stored as texts in paths to numbers, if param_groups list numbers. */
fsdpck_status rekey_text_numbers(rekey *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Sorts members within groups and assigns numbers. */
fsdpck_status rekey_number(rekey *r, rekey_optimizer *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The names or numbers of a group's members as a list, each sorted as above. */
fsdpck_status rekey_lists_make(rekey *r, rekey_optimizer *o, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- rekey_write.c --- */

/* Writes down whose state a tensor is (cat_tensor.param), where that is known. */
fsdpck_status rekey_note_param(rekey *r, const rekey_position *p, uint32_t tensor,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status rekey_tensors(rekey *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status rekey_objects(rekey *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- rekey_root.c --- */

/* A dict keyed by parameter, with its new keys. */
fsdpck_status rekey_dict(rekey *r, const rekey_optimizer *o, value dict, value *made,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A list of groups with new `params`; other dicts are shared. */
fsdpck_status rekey_group_list(rekey *r, const rekey_optimizer *o, value list, value *made,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status rekey_root(rekey *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
