/* unflatten_internal.h: internals shared by the unflatten*.c files.
 *
 *     unflatten.c          the adapter and its source
 *     unflatten_names.c    names: the flat parameter or the rank of a tensor
 *     unflatten_tensors.c  one pass over the first catalogue: tensors and objects of the second
 *     unflatten_units.c    flat parameters, and their conversion
 *     unflatten_check_order.c   shards next to a flat parameter: check of its order
 *     unflatten_collect.c  optimizer state keyed by number: its tensors and groups
 *     unflatten_optim.c    ... its mapping from numbers to parameters
 *     unflatten_state.c    ... and its conversion
 *     unflatten_world.c    number of ranks of the checkpoint
 *     unflatten_match.c    mapping of numbers to parameters by shard lengths
 *     unflatten_ties.c     names of one tensor; tensors that each rank has of its own
 */
#ifndef FSDPCK_STATEDICT_UNFLATTEN_INTERNAL_H
#define FSDPCK_STATEDICT_UNFLATTEN_INTERNAL_H

#include "statedict/unflatten.h"

/* In flat_adapter.targets: an index in flat_adapter_options.order, not flattened. */
#define FLAT_OTHER (UINT32_C(1) << 31)

/* Numbers of parameters are below. */
#define FLAT_NUMBERS_MAX (UINT32_C(1) << 22)

#define FLAT_CHUNK_AS_IS   UINT32_MAX       /* the whole chunk of the first catalogue */
#define FLAT_CHUNK_REFUSED (UINT32_MAX - 1) /* locating it fails with flat_adapter.refusal */
#define FLAT_CHUNK_DIFFERS (UINT32_MAX - 2) /* the shape differs between ranks */
#define FLAT_CHUNK_ALIAS   (UINT32_MAX - 4) /* as FLAT_CHUNK_AS_IS: an alias, which must be equal */
#define FLAT_CHUNK_JOINED  (UINT32_MAX - 3) /* flat_adapter.made_as: of tensors of ranks */

/* Origin of a chunk of the view, by cat_chunk.aux. */
typedef struct flat_chunk {
    uint64_t chunk; /* in the first catalogue */
    uint64_t skip;  /* elements from its first to the box's first */
    uint32_t param; /* in unit_list.params, or one of the above */
} flat_chunk;

/* One tensor of optimizer state keyed by number. */
typedef struct flat_state_tensor {
    uint32_t owner;  /* in flat_adapter.optimizers */
    uint32_t number; /* of the parameter */
    uint32_t key;    /* name id in flat_adapter.texts: "exp_avg" */
    uint32_t tensor; /* in the first catalogue */
    uint32_t rank;   /* CAT_NONE: of all ranks with this state */
} flat_state_tensor;

/* An optimizer, identified by the path to its `state`. */
typedef struct flat_optimizer {
    uint32_t prefix; /* name id in flat_adapter.texts: "optim.", "" */
    uint32_t depth;  /* elements of the path before `state` */
    uint32_t count;  /* of its parameters */
    uint64_t
        targets_at; /* in flat_adapter.targets: for each number a unit, or (orig) a parameter; or
                     * FLAT_OTHER and a position in the order; CAT_NONE */
    bool has_state; /* a tensor */
    bool by_order;  /* targets follow an order that the checkpoint does not record */
    bool failed;    /* without targets; the reason is in flat_adapter.refusal */
} flat_optimizer;

struct flat_adapter {
    catalogue *base;
    source base_source;
    const unit_list *units;
    flat_adapter_options options;
    catalogue *out;
    source source;
    budget *owner;
    vec spots;         /* flat_chunk */
    vec map;           /* uint64_t by tensor of the first catalogue; UINT64_MAX: none */
    vec object_origin; /* uint32_t by object of the view */
    vec refused;       /* uint32_t: numbers of objects of the view that cannot be loaded */
    vec twins;         /* flat_alias */
    vec first_alias;   /* uint32_t by parameter, CAT_NONE */
    vec unit_of;       /* uint32_t by parameter */
    vec made_as;       /* uint32_t by tensor of the view: parameter, or FLAT_CHUNK_AS_IS */
    vec flat_of;       /* uint32_t by unit: its flat parameter in the first catalogue, CAT_NONE */
    vec by_name;       /* uint32_t by name id of the view: tensor + 1 */
    strtab texts;
    strtab dropped; /* names omitted because ranks differ */
    uint64_t dropped_count;
    strtab covered; /* names that flat parameters provide */
    vec pieces;     /* flat_state_tensor */
    vec optimizers; /* flat_optimizer */
    vec targets;    /* uint32_t */
    uint32_t spec;  /* of parameters, CAT_NONE */
    bool orig;      /* use_orig_params, of all units */
    bool whole;     /* flat_numbers_are_whole */
    bool has_flat;  /* the first catalogue has flat parameters */
    bool by_text;   /* keys of the first catalogue are texts, also those that were numbers (DCP) */
    bool carries;   /* an object has a tensor whose elements were moved to other tensors */
    uint64_t ties_uncompared;
    fsdpck_error refusal;
};

/* Another name of a parameter. */
typedef struct flat_alias {
    uint32_t fqn;  /* name id of the list */
    uint32_t next; /* in flat_adapter.twins, CAT_NONE */
} flat_alias;

/* --- unflatten_names.c --- */

/* Parts of a name. The key is that of the state dict: name + key_at, key_nbytes long. */
typedef struct flat_name {
    const char *text;
    size_t key_at, key_nbytes;
    uint32_t rank; /* of a CAT_TENSOR_OF_RANK, whose suffix is not in the key; else CAT_NONE */
} flat_name;

void flat_name_read(const catalogue *c, uint32_t tensor, flat_name *n);
/* The unit whose flat parameter has this name; NULL if it is no flat parameter or belongs to no
 * unit. *is_flat: its name is that of a flat parameter. outer becomes the part before the model's
 * own names. */
fsdpck_status flat_name_unit(const flat_adapter *v, const flat_name *n, const unit **u,
                             bool *is_flat, text_buf *outer, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the last part is the name of a flat parameter. */
bool flat_name_is_flat(const char *text, size_t nbytes);
/* path: .., "state", number, key. False for any other path. by_text: the number may be a text. */
bool flat_path_numbered(const value_pool *pool, value path, bool by_text, size_t *depth,
                        uint32_t *number);

/* --- unflatten_walk.c --- */

fsdpck_status flat_make_tensors(flat_adapter *v, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- unflatten_tensors.c --- */

const unit_param *flat_param(const flat_adapter *v, uint32_t index);
const unit *flat_unit_of(const flat_adapter *v, uint32_t param);
/* Adds a tensor, or finds the one of this name that was made for the same parameter. path: value of
 * the view's pool. */
fsdpck_status flat_tensor_get(flat_adapter *v, const char *name, size_t nbytes, dtype d,
                              uint32_t param, uint32_t *tensor, bool *fresh,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds chunks to a tensor of the view: the part of elements [begin, end) of the flat parameter that
 * belongs to parameter `param`, which begins at `offset` there. `chunk` holds the elements from
 * `held` on. */
fsdpck_status flat_add_interval(flat_adapter *v, uint32_t tensor, uint32_t param, uint64_t offset,
                                uint64_t chunk, uint64_t held, uint64_t begin, uint64_t end,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds a chunk unchanged. */
fsdpck_status flat_add_same(flat_adapter *v, uint32_t tensor, uint64_t chunk,
                            uint32_t flat_param_index, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The first `keep` elements of a path of the first catalogue, then `more`. None remains None. */
fsdpck_status flat_path(flat_adapter *v, value path, size_t keep, const char *const *more,
                        const size_t *more_nbytes, size_t more_count, value *made,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds a tensor of the first catalogue under another name, which several may have: replicas. */
fsdpck_status flat_join_tensor(flat_adapter *v, uint32_t base_tensor, const char *name,
                               size_t nbytes, value path, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* RANK-DIFFER: such tensors of several ranks are not alike. name may be NULL. */
fsdpck_status flat_join_refuse(const char *name, fsdpck_error *err);
fsdpck_status flat_keep_tensor(flat_adapter *v, uint32_t base_tensor, uint32_t flat_param_index,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds a tensor like one of the first catalogue under its own name, without chunks. */
fsdpck_status flat_copy_tensor(flat_adapter *v, uint32_t base_tensor, const char *name,
                               size_t nbytes, value path, uint32_t *made,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Returns a chunk like one of the first catalogue, to adapt and add. */
fsdpck_status flat_add_chunk(flat_adapter *v, uint64_t chunk, uint64_t skip, uint32_t param,
                             cat_chunk *k, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds an object of the view; origin in the first catalogue. */
fsdpck_status flat_add_object(flat_adapter *v, const char *name, size_t nbytes, value path,
                              uint32_t base_object, uint32_t *object,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- unflatten_check_order.c --- */

/* Checks that a 1-dim tensor which flat parameters also provide has the same offset there:
 * MODEL-MISMATCH. */
fsdpck_status flat_check_order(const flat_adapter *v, uint32_t base_tensor, const flat_name *n,
                               text_buf *clean, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- unflatten_units.c --- */

/* Adds the names that flat parameters provide to v->covered. seen: for each unit whether it exists.
 * MODEL-MISMATCH if units and flat parameters differ. outer is scratch. */
fsdpck_status flat_cover_all(flat_adapter *v, uint8_t *seen, text_buf *outer,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Converts a flat parameter to its unit's parameters. outer: the part before the model's own names.
 */
fsdpck_status flat_expand(flat_adapter *v, uint32_t base_tensor, const flat_name *n, const unit *u,
                          const text_buf *outer, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Elements of the flat parameter in a 1-dim tensor of a rank; MODEL-MISMATCH. */
fsdpck_status flat_rank_interval(const flat_adapter *v, const unit *u, uint32_t base_tensor,
                                 uint64_t chunk, uint64_t *begin, uint64_t *end,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- unflatten_collect.c --- */

/* Records a tensor that is optimizer state keyed by number; *taken is false for any other. */
fsdpck_status flat_optim_add(flat_adapter *v, uint32_t base_tensor, bool *taken,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether some param_groups list numbers. */
bool flat_lists_numbers(const flat_adapter *v);
/* Records the optimizers whose param_groups list numbers, with or without state. */
fsdpck_status flat_optim_add_groups(flat_adapter *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the object is `what` of a param_group of this optimizer. */
bool flat_is_of_group(const flat_adapter *v, const flat_optimizer *o, const cat_object *from,
                      const char *what);
/* CAT_NONE if it is not a valid number. */
uint32_t flat_number_at(const flat_adapter *v, value list, size_t i);
/* Bytes of a name before "state.", whose path has `depth` elements before it. */
size_t flat_prefix_nbytes(const catalogue *c, value path, uint32_t name, size_t depth);

/* --- unflatten_optim.c --- */

/* Finds the parameter of each number. */
fsdpck_status flat_optim_find(flat_adapter *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the tensor has the parameter's own shape: with use_orig_params, state of an unsharded
 * unit has the shape of its parameters. */
bool flat_piece_is_whole(const flat_adapter *v, uint32_t base_tensor, uint32_t param);

/* --- unflatten_state.c --- */

fsdpck_status flat_optim_make(flat_adapter *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Converts an object of the first catalogue that contains numbers, and adds the result. */
fsdpck_status flat_optim_object(flat_adapter *v, uint32_t base_object, bool *taken,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- unflatten_ties.c --- */

/* Whether each rank has its own tensor of this name. */
bool flat_is_local(const flat_adapter *v, const char *name, size_t nbytes);
/* Call after all other tensors except storages. */
fsdpck_status flat_add_ties(flat_adapter *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* source.replica_of */
const char *flat_replica_of(void *ctx, uint64_t chunk);

/* --- unflatten_world.c --- */

/* Whether the checkpoint has data sharded as units are: flat parameters, or state by number. */
bool flat_has_pieces(const catalogue *base);
/* State by number of an optimizer outside FSDP1, such as that of a model on one rank: it is
 * unchanged. */
bool flat_numbers_are_whole(const catalogue *base, bool by_text);

/* --- unflatten_ambiguity.c --- */

/* Whether numbers of an optimizer could refer to parameters other than their targets: those with
 * shards of equal lengths. *why becomes an example, empty if the mapping is unique. */
fsdpck_status flat_find_ambiguity(const flat_adapter *v, uint32_t owner, bool orig, text_buf *why,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- unflatten_match.c --- */

typedef struct flat_match {
    const unit_list *units;
    uint32_t count;        /* of numbers */
    const uint64_t *first; /* count + 1: start of each number's lengths */
    const uint32_t *ranks;
    const uint64_t *nelems; /* of that rank's shard */
    uint32_t *found;        /* count: parameters, in unit_list.params */
    budget *owner;
} flat_match;

/* Number of orders of a module tree with those lengths: 0, 1 (it is in found) or 2 for several or
 * too many to search. */
fsdpck_status flat_match_run(flat_match *m, unsigned *solutions,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
