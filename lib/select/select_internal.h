/* select_internal.h: what the files of this folder share while one target is made. */
#ifndef FSDPCK_SELECT_SELECT_INTERNAL_H
#define FSDPCK_SELECT_SELECT_INTERNAL_H

#include "select/select.h"
#include "state/value_map.h"

/* A source tensor that goes into the target. */
typedef struct select_pick {
    uint32_t source;
    uint32_t name;    /* in select_state.names: its final name */
    uint32_t target;  /* CAT_NONE: dropped as a tie */
    uint32_t tied_to; /* index of a pick that is the same tensor under another name, or CAT_NONE */
    uint32_t param;   /* of the units: the parameter that it is, or CAT_NONE */
    bool is_linked;   /* its target tensor is that of the pick that it is tied to */
    bool is_alias;    /* another name for a parameter of the units: has no place of its own */
    /* Optimizer state for a flat writer: of what parameter `param` is a piece; a scalar with
     * use_orig_params is on the ranks that have a piece of `held_by`. */
    uint32_t state;   /* 0: none; 1 + number in select_state.state_keys; OPTIM_STATE_PLAIN */
    uint32_t held_by; /* or CAT_NONE */
    bool is_merged;   /* an earlier one stands for it */
} select_pick;

typedef struct select_state {
    catalogue *from;
    const checkpoint_parts *parts;
    const select_request *request;
    target *to;
    select_result *result;
    select_rules rules;
    strtab names;
    vec picks;        /* select_pick, in the order of the source */
    vec objects;      /* uint32_t: picked objects */
    vec object_names; /* uint32_t, beside them: in names, where the rules change it; or CAT_NONE */
    bool objects_renamed;
    size_t inner_pick;   /* which of `objects` is walked */
    uint16_t inner_rank; /* the one rank whose object is walked, UINT16_MAX: every rank's */
    /* Of each source tensor inside an object, that object, or CAT_NONE; of each object, whether it is
     * written: its tensors go with it. */
    uint32_t *inner_owner;
    uint8_t *object_kept;
    bool *keyless;              /* of each object: torch gives it no key in DCP (keyless.c) */
    name_list left_out_objects; /* names, until they follow those of tensors */
    strtab state_keys;          /* of a flat writer: "exp_avg" */
    bool source_is_sharded;     /* several ranks wrote the source, and a tensor of it in pieces */
    vec open_states;      /* uint32_t: source tensors, one for each kind of CAT_TENSOR_PARAM_OPEN */
    uint64_t *tensor_map; /* source tensor -> target tensor, UINT64_MAX where it is not taken */
    uint64_t *inner_map;  /* the same inside the object that select_inner_add was last called for */
    value_map inner;      /* copies of tensors that objects alone have in the target */
    uint32_t inner_object; /* that object, CAT_NONE: none */
    bool has_own_inner;    /* an object has a copy of its own of a tensor that has a name */
} select_state;

/* select_tensor.c: whether the target has places for objects. */
bool select_keeps_objects(const select_state *a);
/* Adds a target tensor that is made from a source tensor, with its chunks. `pick` is NULL for one
 * inside an object. KEY-DTYPE. */
fsdpck_status select_add_tensor(select_state *a, const select_pick *pick, uint32_t from_index,
                                const char *name, size_t nbytes, dtype d, uint32_t *index,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Tensors inside objects (select_inner_copy.c), once all picked tensors are added: adds those of the k-th picked
 * object to the target where they are not there yet, and fills inner_map for it. For all objects,
 * unless the writer keeps them apart and takes them one by one. */
fsdpck_status select_inner_add(select_state *a, size_t k, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status select_inner_add_all(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether every tensor and object goes under its own name: then the source's own nesting serves. */
bool select_is_everything(const select_state *a);

/* Deepest path that is rebuilt; torch's own flattening recurses and so stays far below. */
#define SELECT_PATH_MAX 64u

/* A path as values of the target's pool. */
typedef struct target_path {
    value elements[SELECT_PATH_MAX];
    size_t count;
} target_path;

/* The path as the source has it, wrapper parts cleaned where that is asked for. */
fsdpck_status target_path_copy(select_state *a, value path, uint32_t name, bool is_model,
                               target_path *p, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Fits the path to the final name: outer elements that the name still begins with are kept, and inner
 * ones that it still ends with ('exp_avg' of optim.state.FQN.exp_avg); what remains of the name
 * between them is one key. */
fsdpck_status target_path_fit(select_state *a, const char *name, size_t nbytes, target_path *p,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Value of select_state.source_is_sharded. */
bool select_source_is_sharded(const catalogue *c);
/* Gives target tensor `index`, made from source tensor `from`, its spec and its chunks. `pick` is
 * NULL for a tensor inside an object: replicated. */
fsdpck_status select_shard_tensor(select_state *a, const select_pick *pick, uint32_t from,
                                  uint32_t index, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Finds what parameters of cut->units the picks are, which must all be there; other names of them
 * become twins. BADINPUT (MODEL-MISMATCH). After select_find_ties. */
fsdpck_status flatten_find_params(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Chunks of the ranks' pieces; target tensor `index` is pick->param, or held where that is. */
fsdpck_status flatten_add_chunks(select_state *a, const select_pick *pick, uint32_t index,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Ranks [*first, *end) may have pieces of a parameter. */
void flatten_rank_range(const select_state *a, const unit *u, const unit_param *p, uint32_t *first,
                        uint32_t *end);
/* A flat parameter has one dtype: UNSUPPORTED. After all tensors are added. */
fsdpck_status flatten_check_dtypes(const select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of an optimizer's path: .., 'state', FQN, key, or 'state.FQN.key'. */
typedef enum optim_state_kind {
    OPTIM_STATE_NONE, /* no state */
    OPTIM_STATE_NAMED,
    OPTIM_STATE_NUMBERED, /* of a parameter by number */
    OPTIM_STATE_UNKNOWN,
} optim_state_kind;

typedef struct optim_state_name {
    text_buf fqn; /* cleaned */
    text_buf key;
    size_t depth; /* elements before 'state' */
} optim_state_name;

/* select_pick.state: of the optimizer, and no parameter's state. */
#define OPTIM_STATE_PLAIN TARGET_STATE_PLAIN

/* n may be zeroed; its texts are filled anew, to be checked by the caller. */
optim_state_kind optim_state_parse(const value_pool *pool, value path, bool has_ddp,
                                   optim_state_name *n);
void optim_state_name_release(optim_state_name *n);
/* Renames an FQN as its parameter is; CAT_NONE: a parameter of no unit. */
fsdpck_status optim_state_find_param(select_state *a, text_buf *fqn, uint32_t *param,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
/* MODEL-OPTIM. */
fsdpck_status optim_state_refuse(fsdpck_status status, const char *what, const char *name,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status optim_state_refuse_numbers(const char *name, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Finds what the picks of the optimizer part are. After flatten_find_params. */
fsdpck_status flat_state_find(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Makes to->root or to->rank_roots of a flat writer, once all targets are known. */
fsdpck_status flat_root_build(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What the report says of a tie: "tied = first". */
fsdpck_status select_record_tie(select_state *a, const select_pick *first, const select_pick *tied,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The one rank whose file gets the pick, under its name without '.rank3'; UINT16_MAX: it is any
 * tensor. A rank's own tensor goes back where the target has a file for each of as many ranks. */
uint16_t select_only_rank(const select_state *a, const select_pick *pick);

/* Where a picked object, the k-th, goes in the target, and what it is there. Names of parameters in
 * an optimizer's param_groups are those that their state has, or else the model. After
 * aim_objects_find. */
fsdpck_status select_object_path(select_state *a, size_t k, target_path *p,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status select_object_content(select_state *a, size_t k, value *content,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Once all are picked: names by the rules. KEY-DUP (USAGE). */
fsdpck_status select_objects_rename(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Once all tensors have their places: fills to->owners. */
fsdpck_status select_objects_find_owners(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

struct nest;
/* Whether a list of the target would have a hole where the source has something: KEY-LIST. rank: whose
 * state it is, UINT64_MAX for all ranks'. */
fsdpck_status select_check_lists(select_state *a, const struct nest *n, uint64_t rank,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Paths of the target's tensors, and its objects. */
fsdpck_status select_build_flat_keys(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Where a source tensor that views a shared storage lies; its one chunk is located. */
fsdpck_status select_resolve_storage(const select_state *a, uint32_t source, place *where,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills tied_to of the picks, and the result's ties. */
fsdpck_status select_find_ties(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The pick that is written for a tied one. */
select_pick *select_tied_primary(const select_state *a, uint32_t pick);
/* Picks that have no tensor of their own: linked ones get that of their head, names of others are
 * noted in the target. */
fsdpck_status select_assign_tied(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills to->views: storages whose every view is taken, uncast, stay shared. */
fsdpck_status select_keep_shared(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* select_omit.c: counts and names what is not written. An object is UNSUPPORTED with
 * SELECT_OBJECTS_ERROR. */
fsdpck_status select_omit_tensor(select_state *a, size_t i, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status select_omit_object(select_state *a, size_t i, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* What the reader left out before. */
fsdpck_status select_omit_unread(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Names of objects behind those of tensors: once, last. */
fsdpck_status select_omit_finish(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds an escaped name. */
fsdpck_status name_list_add(name_list *n, const char *text, size_t nbytes,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
void name_list_release(name_list *n);

/* Fills keyless. */
fsdpck_status select_find_keyless(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* select_inner.c: tensors that lie inside objects. Fills inner_owner. */
fsdpck_status select_inner_find(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Objects may share a tensor that has no name: it goes with one that is written. */
fsdpck_status select_inner_keep(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the rules take an object that holds tensors with names: all of them, or none. USAGE. */
fsdpck_status select_inner_match(select_state *a, size_t object, bool *wanted,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether an object holds tensors that can be taken without it and, with *only, nothing else. */
bool select_inner_has_named(const select_state *a, size_t object, bool *only);
/* Whether the rules take a tensor by this name, its own or, inside an object, the object's. */
fsdpck_status select_inner_is_selected(select_state *a, size_t i, const char *name, bool *wanted,
                                       fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The name before the rules. */
void select_original_name(const select_state *a, uint32_t name, checkpoint_part part,
                          text_buf *out);
/* What a tensor inside the k-th picked object is called in the target, and its dtype. */
fsdpck_status select_inner_name(const select_state *a, size_t k, uint64_t from_index,
                                text_buf *name, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Makes to->root. */
fsdpck_status select_build_root(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
