/* select_internal.h: shared by the files of this folder while one target is built. */
#ifndef FSDPCK_SELECT_SELECT_INTERNAL_H
#define FSDPCK_SELECT_SELECT_INTERNAL_H

#include "select/select.h"
#include "state/value_map.h"

/* A source tensor that is selected for the target. */
typedef struct select_pick {
    uint32_t source;
    uint32_t name;   /* in select_state.names: its final name */
    uint32_t marks;  /* in select_state.marks: of a name that the rules changed, or CAT_NONE */
    uint32_t target; /* CAT_NONE: dropped as a tie */
    uint32_t
        tied_to; /* index of a pick that is the same tensor under a different name, or CAT_NONE */
    bool shares_view;    /* tied_to is the same view of the same storage, in the same dtype */
    uint32_t param;      /* its parameter in the units, or CAT_NONE */
    bool is_linked;      /* shares the target tensor of the pick that it is tied to */
    bool is_omitted_tie; /* omitted: select_request.omits_tied_head, like_ties */
    bool is_alias; /* an additional name of a parameter of the units, without its own location */
    /* Optimizer state for a flat writer: `param` is the parameter that it belongs to. With
     * use_orig_params, a scalar is on the ranks with a shard of `held_by`. */
    uint32_t state;   /* 0: none; 1 + number in select_state.state_keys; OPTIM_STATE_PLAIN */
    uint32_t held_by; /* or CAT_NONE */
    bool is_merged;   /* an earlier pick represents it */
} select_pick;

typedef struct select_state {
    catalogue *from;
    const checkpoint_parts *parts;
    const select_request *request;
    target *to;
    select_result *result;
    select_rules rules;
    strtab names;
    vec picks;   /* select_pick, in the order of the source */
    vec objects; /* uint32_t: picked objects */
    vec object_names; /* uint32_t, parallel to objects: a name that cleaning or rules changed, or CAT_NONE */
    vec object_marks; /* uint32_t, likewise: in marks, or CAT_NONE */
    strtab marks;     /* name_marks.h */
    /* Parameters: their names in the model before the rules; for each a text of param_texts after
     * them. */
    strtab params, param_texts;
    vec param_names; /* uint32_t */
    /* Parameters in the target's param_groups: rank, optimizer and new name, and for each the name
     * in the source, a text of listed_texts. */
    strtab listed, listed_texts;
    vec listed_was; /* uint32_t */
    bool objects_renamed;
    size_t inner_pick;   /* index in `objects` during a walk */
    uint16_t inner_rank; /* the rank of the walked object, UINT16_MAX: every rank's */
    /* By source tensor: the object that contains it, or CAT_NONE. By object: whether it is written,
     * together with its tensors. */
    uint32_t *inner_owner;
    uint8_t *object_kept;
    bool *keyless;              /* by object: torch gives it no key in DCP (keyless.c) */
    name_list left_out_objects; /* names, until appended to those of tensors */
    strtab state_keys;          /* of a flat writer: "exp_avg" */
    strtab used_groups;         /* select_groups.c: param_groups of selected state */
    bool has_used_groups;
    bool source_is_sharded; /* several ranks wrote the source, with a tensor in several shards */
    vec open_states;      /* uint32_t: source tensors, one for each kind of CAT_TENSOR_PARAM_OPEN */
    uint64_t *tensor_map; /* source tensor -> target tensor, UINT64_MAX if not selected */
    uint64_t *inner_map;  /* the same inside the object that select_inner_add was last called for */
    value_map inner;      /* copies of tensors that only objects have in the target */
    uint32_t inner_object; /* that object, CAT_NONE: none */
    bool has_own_inner;    /* an object has its own copy of a named tensor */
} select_state;

/* select_tensor.c: whether the target has places for objects. */
bool select_keeps_objects(const select_state *a);
/* Whether names of a part lose its outer key: the part stands alone in a flat file. */
bool select_stands_alone(const select_state *a, checkpoint_part part);
/* Adds a target tensor that is made from a source tensor, with its chunks. `pick` is NULL for one
 * inside an object. KEY-DTYPE. */
fsdpck_status select_add_tensor(select_state *a, const select_pick *pick, uint32_t from_index,
                                const char *name, size_t nbytes, dtype d, uint32_t *index,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Tensors inside objects (select_inner_copy.c), after all picked tensors: adds missing tensors of
 * the k-th picked object to the target, and fills inner_map for it. For all objects at once, unless
 * the writer takes them one by one. */
fsdpck_status select_inner_add(select_state *a, size_t k, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status select_inner_add_all(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether every tensor and object keeps its name; then the source's own nesting is used. */
bool select_is_everything(const select_state *a);

/* Depth limit of rebuilt paths. torch's own flattening is recursive and so stays far below. */
#define SELECT_PATH_MAX 64u

/* A path as values of the target's pool. */
typedef struct target_path {
    value elements[SELECT_PATH_MAX];
    size_t count;
} target_path;

/* The source's path, without wrapper parts if requested. */
fsdpck_status target_path_copy(select_state *a, value path, uint32_t name, checkpoint_part part,
                               target_path *p, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adapts the path to the final name: to its marks, an id in select_state.marks. Without marks
 * (CAT_NONE), outer elements that the name still begins with are kept, and inner ones that it still
 * ends with ('exp_avg' of optim.state.FQN.exp_avg). The rest of the name is one key. */
fsdpck_status target_path_fit(select_state *a, const char *name, size_t nbytes, uint32_t marks,
                              target_path *p, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The path that a name with marks stands for. */
fsdpck_status target_path_of_marks(select_state *a, const char *name, size_t nbytes,
                                   const char *marks, target_path *p,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Appends a list index, an int key or a text. */
void target_path_append_element(const value_pool *pool, value v, text_buf *out);

/* A name of the source. */
typedef struct name_source {
    value path;
    uint32_t name;
    checkpoint_part part;
} name_source;

/* Applies the rules to a name that select_original_name gave, except to its list indexes, numbers
 * and keys of an optimizer. marks: of the new name, empty if it is not that of the path. */
fsdpck_status select_apply_rules(select_state *a, const name_source *s, text_buf *name,
                                 text_buf *marks, bool *changed,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* For select_request.trainer_keys, after the rules. Without marks, the name remains. */
fsdpck_status select_put_trainer_keys(text_buf *name, text_buf *marks, bool *changed,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Before the first select_apply_rules: names of the model's parameters, for optimizer state. */
typedef bool (*select_wanted_fn)(const select_state *a, size_t tensor);
fsdpck_status select_find_param_names(select_state *a, select_wanted_fn is_wanted,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Value of select_state.source_is_sharded. */
bool select_source_is_sharded(const catalogue *c);
/* Gives target tensor `index`, made from source tensor `from`, its spec and its chunks. `pick` is
 * NULL for a tensor inside an object: replicated. */
fsdpck_status select_shard_tensor(select_state *a, const select_pick *pick, uint32_t from,
                                  uint32_t index, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Maps the picks to parameters of cut->units. Every parameter must be picked; its other names
 * become aliases. BADINPUT (MODEL-MISMATCH). After select_find_ties. */
fsdpck_status flatten_find_params(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds the chunks of the ranks' shards; target tensor `index` is pick->param, or has its
 * location. */
fsdpck_status flatten_add_chunks(select_state *a, const select_pick *pick, uint32_t index,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Ranks [*first, *end) may have shards of a parameter. */
void flatten_rank_range(const select_state *a, const unit *u, const unit_param *p, uint32_t *first,
                        uint32_t *end);
/* UNSUPPORTED if a flat parameter has two dtypes. After all tensors are added. */
fsdpck_status flatten_check_dtypes(const select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of an optimizer's path: .., 'state', FQN, key, or 'state.FQN.key'. */
typedef enum optim_state_kind {
    OPTIM_STATE_NONE, /* no state */
    OPTIM_STATE_NAMED,
    OPTIM_STATE_NUMBERED, /* of a numbered parameter */
    OPTIM_STATE_UNKNOWN,
} optim_state_kind;

typedef struct optim_state_name {
    text_buf fqn; /* cleaned */
    text_buf key;
    size_t depth; /* elements before 'state' */
} optim_state_name;

/* select_pick.state: a tensor of the optimizer that is no parameter's state. */
#define OPTIM_STATE_PLAIN TARGET_STATE_PLAIN

/* n may be zeroed. Its texts are overwritten; the caller checks them. */
optim_state_kind optim_state_parse(const value_pool *pool, value path, bool has_ddp,
                                   optim_state_name *n);
void optim_state_name_release(optim_state_name *n);
/* Renames an FQN like its parameter; CAT_NONE: a parameter in no unit. */
fsdpck_status optim_state_find_param(select_state *a, text_buf *fqn, uint32_t *param,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
/* MODEL-OPTIM. */
fsdpck_status optim_state_refuse(fsdpck_status status, const char *what, const char *name,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status optim_state_refuse_numbers(const char *name, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Classifies the picks of the optimizer part. After flatten_find_params. */
fsdpck_status flat_state_find(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Makes to->root or to->rank_roots of a flat writer, once all targets are known. */
fsdpck_status flat_root_build(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The text of a tie for the report: "tied = first". */
fsdpck_status select_record_tie(select_state *a, const select_pick *first, const select_pick *tied,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The only rank whose file gets the pick, under its name without '.rank3'; UINT16_MAX: not
 * rank-local. Rank-local tensors return to their ranks if the target has as many rank files. */
uint16_t select_only_rank(const select_state *a, const select_pick *pick);

/* Location and value of the k-th picked object in the target. Parameters in an optimizer's
 * param_groups get the names of their state, or else of the model. After select_objects_find_owners. */
fsdpck_status select_object_path(select_state *a, size_t k, target_path *p,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status select_object_content(select_state *a, size_t k, value *content,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After all items are picked: cleans the names of objects and applies the rules. KEY-DUP (USAGE). */
fsdpck_status select_objects_rename(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After all tensors have locations: fills to->owners. */
fsdpck_status select_objects_find_owners(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

struct nest;
/* KEY-LIST if a list of the target would have a gap that the source does not have. rank: the rank
 * of the state, UINT64_MAX for all ranks. */
fsdpck_status select_check_lists(select_state *a, const struct nest *n, uint64_t rank,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Paths of the target's tensors, and its objects. */
fsdpck_status select_build_flat_keys(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Location of a source tensor in a shared storage. Its only chunk must be located. */
/* Whether two source tensors have the same bytes, shape and strides. */
fsdpck_status select_same_view(const select_state *a, uint32_t i, uint32_t k, bool *same,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status select_resolve_storage(const select_state *a, uint32_t source, place *where,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The dtype of a pick in the target. */
dtype select_dtype_of(select_state *a, const select_pick *pick);
/* Fills tied_to of the picks, and the result's ties. */
fsdpck_status select_find_ties(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The pick that is written for a tied one. */
select_pick *select_tied_primary(const select_state *a, uint32_t pick);
/* Picks without their own tensor: linked ones get the tensor of their head; names of the others are
 * recorded in the target. */
fsdpck_status select_assign_tied(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills to->views: storages stay shared if all tensors on them are selected uncast. Otherwise names
 * of one view that get the same dtype share a storage of their own. */
fsdpck_status select_find_lost_attributes(select_state *a, const value_map *kept,
                                          fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status select_keep_shared(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* select_omit.c: counts and lists omitted tensors and objects. An omitted object is UNSUPPORTED
 * with SELECT_OBJECTS_ERROR. */
fsdpck_status select_omit_tensor(select_state *a, size_t i, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status select_omit_object(select_state *a, size_t i, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Tensors and objects that the reader omitted. */
fsdpck_status select_omit_unread(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Appends the names of objects to those of tensors. Once, at the end. */
fsdpck_status select_omit_finish(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds an escaped name. */
fsdpck_status name_list_add(name_list *n, const char *text, size_t nbytes,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
void name_list_release(name_list *n);

/* Fills keyless. */
fsdpck_status select_find_keyless(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* select_inner.c: tensors that lie inside objects. Fills inner_owner. */
fsdpck_status select_inner_find(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Assigns a nameless tensor that objects share to an object that is written. */
fsdpck_status select_inner_keep(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the rules select an object with named tensors. USAGE if they select only some of its
 * tensors. */
fsdpck_status select_inner_match(select_state *a, size_t object, bool *wanted,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether an object contains tensors that can be selected without it; *only: and nothing else. */
bool select_inner_has_named(const select_state *a, size_t object, bool *only);
/* Whether the rules select a tensor by its name or, inside an object, by the object's name. */
fsdpck_status select_inner_is_selected(select_state *a, size_t i, const char *name, bool *wanted,
                                       fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The name before the rules. */
void select_original_name(const select_state *a, uint32_t name, checkpoint_part part,
                          text_buf *out);
/* Name and dtype in the target of a tensor inside the k-th picked object. */
fsdpck_status select_inner_name(const select_state *a, size_t k, uint64_t from_index,
                                text_buf *name, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* select_groups.c: whether the rules select an item of an optimizer's param_groups, which are
 * selected whole: by their own name or by a tensor of their state. *in_groups false: no such item. */
fsdpck_status select_groups_match(select_state *a, const name_source *s, bool *in_groups,
                                  bool *wanted, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Makes to->root. */
fsdpck_status select_build_root(select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
