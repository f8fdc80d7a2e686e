/* unit.h: what one FSDP1 unit flattens, in which order, and what each rank holds of it.
 *
 * A unit is a fully sharded module with its flat parameter: the module's parameters, nested units
 * and ignored ones left out, one after the other in one 1-dim tensor, cut evenly over the ranks.
 * Units come from a model description (model.h) or from a list (unit_json.h):
 *
 *     unit_list l;
 *     unit_list_init(&l, &budget);
 *     RETURN_IF(unit_list_add(&l, &proto, "blk", 3, "_flat_param", 11, err));
 *     RETURN_IF(unit_list_add_param(&l, "blk.a.weight", 12, 2, shape, NULL, err));   // flat order
 *     RETURN_IF(unit_list_add_shared(&l, "head.weight", 11, "emb.weight", 10, err));
 *     RETURN_IF(unit_list_close(&l, err));                    // offsets, padding, totals of it
 *     ...
 *     const unit *u = unit_at(&l, i);
 *     unit_shard s = unit_shard_of(u, rank);                  // its elements and its padding
 *     for (uint32_t k = 0; k < u->nparams; k++)
 *         unit_param_range p = unit_param_range_of(&l, u, k, rank);       // what of parameter k
 *
 * Everything is counted in elements. With use_orig_params each parameter begins at a multiple of
 * `alignment` and the end is padded to a multiple of the world size; this padding holds the value
 * 42 (torch 2.1 and newer; 2.0 has none of it: alignment 0). Without, nothing is padded inside. What
 * the last ranks lack of a full shard is zeros, which a state dict leaves out. A parameter that is
 * not row-major in memory (channels-last) is flattened in memory order from torch 2.6 on, and in
 * row-major order before: `row_major`.
 *
 * Source: torch 2.15, torch/distributed/fsdp/_flat_param.py; releases compared by running them.
 */
#ifndef FSDPCK_MODEL_UNIT_H
#define FSDPCK_MODEL_UNIT_H

#include "base/alloc.h"
#include "state/box.h"
#include "state/dtype.h"

#define UNIT_PADDING_VALUE 42

typedef enum sharding_strategy {
    STRATEGY_FULL_SHARD,
    STRATEGY_SHARD_GRAD_OP,
    STRATEGY_NO_SHARD,
    STRATEGY_HYBRID_SHARD,
    STRATEGY_HYBRID_SHARD_ZERO2
} sharding_strategy;

/* torch's name of it: "FULL_SHARD", ... */
const char *sharding_strategy_name(unsigned strategy);

/* A parameter inside a flat parameter. */
typedef struct unit_param {
    uint32_t fqn; /* name id: clean, from the root of the model */
    uint8_t ndim;
    bool permuted;     /* flattened in memory order, which is not row-major: see order_at */
    uint64_t shape_at; /* in unit_list.dims: ndim sizes */
    uint64_t order_at; /* permuted: ndim dims, outermost in memory first */
    uint64_t nelems;
    uint64_t offset; /* of its first element in the flat parameter */
} unit_param;

/* A name for a parameter that is flattened under another one. */
typedef struct unit_shared {
    uint32_t fqn;
    uint32_t same_as; /* fqn of the one flattened, perhaps of another unit */
} unit_shared;

typedef struct unit {
    uint32_t prefix;    /* name id: path of the fully sharded module, "" for the root */
    uint32_t flat_name; /* "_flat_param"; "flat_param" in torch 1.13 */
    uint8_t dtype;      /* of the flat parameter */
    uint8_t compute;    /* dtype that it is gathered in; DTYPE_NONE: dtype */
    uint8_t strategy;   /* of sharding_strategy; for what a plan says alone */
    bool use_orig_params;
    bool unsharded;      /* NO_SHARD: each rank has all of it; world_size then is but for padding */
    bool keyed;          /* `prefix` is the whole key of its flat parameter: shard_metadata.h */
    bool row_major;      /* written by torch before 2.6: strides are of no account */
    uint32_t alignment;  /* elements; 0: none */
    uint32_t world_size; /* ranks that share it: of the sharding group, not of the whole job */
    uint32_t first_param, nparams;
    uint32_t first_shared, nshared;
    uint64_t total;      /* elements with inner and world padding, without the ranks' own */
    uint64_t shard_size; /* ceil(total / world_size), the same on all ranks; unsharded: total */
} unit;

typedef struct unit_list {
    budget *owner;
    strtab names;
    vec units;  /* unit, in the order of traversal */
    vec params; /* unit_param */
    vec shared; /* unit_shared */
    vec dims;   /* uint64_t */
    vec uses;   /* of each name id: what it is the name of */
    bool open;  /* the last unit may still grow */
} unit_list;

/* Elements of the flat parameter that a rank holds. */
typedef struct unit_shard {
    uint64_t begin, end; /* end - begin + padding == shard_size */
    uint64_t padding;    /* zeros at the end (torch: _shard_numel_padded) */
} unit_shard;

/* What a rank holds of one parameter: torch's _shard_param_infos, with an exclusive end. */
typedef struct unit_param_range {
    bool in_shard;
    uint64_t shard_offset; /* of its first element in the rank's shard */
    uint64_t begin, end;   /* elements of the parameter, in memory order */
} unit_param_range;

void unit_list_init(unit_list *l, budget *owner);
void unit_list_release(unit_list *l);

/* dtype, compute, strategy, use_orig_params, unsharded, row_major, alignment and world_size of
 * proto are taken; world_size 1 or more. alignment counts only with use_orig_params. MODEL-NAME-DUP where another
 * unit has the prefix. */
fsdpck_status unit_list_add(unit_list *l, const unit *proto, const char *prefix,
                            size_t prefix_nbytes, const char *flat_name, size_t flat_name_nbytes,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* To the last unit, in flat order. strides: in elements, NULL where contiguous; they must be those
 * of some order of the dims without gaps, else UNSUPPORTED (a row_major unit asks nothing of them).
 * BADINPUT (MODEL-SHAPE) where there are too many dims or sizes do not fit 63 bits, MODEL-NAME-DUP
 * where the FQN is in the list. */
fsdpck_status unit_list_add_param(unit_list *l, const char *fqn, size_t nbytes, unsigned ndim,
                                  const uint64_t *shape, const uint64_t *strides,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* To the last unit. `same_as` must be a parameter of the list by unit_list_seal. */
fsdpck_status unit_list_add_shared(unit_list *l, const char *fqn, size_t nbytes,
                                   const char *same_as, size_t same_as_nbytes,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Gives the last unit's parameters their offsets, the unit its totals. MODEL-SHAPE where the total
 * does not fit 63 bits. */
fsdpck_status unit_list_close(unit_list *l, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* After the last unit: every same_as is a parameter of the list (MODEL-TIE). */
fsdpck_status unit_list_seal(unit_list *l, fsdpck_error *err) FSDPCK_MUST_CHECK;

uint32_t unit_count(const unit_list *l);
const unit *unit_at(const unit_list *l, uint32_t i);
/* k counts from 0 within the unit. */
const unit_param *unit_param_at(const unit_list *l, const unit *u, uint32_t k);
const unit_shared *unit_shared_at(const unit_list *l, const unit *u, uint32_t k);
const uint64_t *unit_param_shape(const unit_list *l, const unit_param *p);
/* Of a permuted parameter: strides that give its order of dims, ndim of them. */
void unit_param_strides(const unit_list *l, const unit_param *p, uint64_t *strides);
const char *unit_name(const unit_list *l, uint32_t name_id, size_t *nbytes);

/* The unit whose module this is, and the parameter of this name or, for a shared name, the one that
 * it stands for, with its unit (may be NULL). NULL where there is none. */
const unit *unit_list_find(const unit_list *l, const char *prefix, size_t nbytes);
const unit_param *unit_list_find_param(const unit_list *l, const char *fqn, size_t nbytes,
                                       const unit **of);

/* The unit of a parameter, by its number in unit_list.params. */
const unit *unit_of_param(const unit_list *l, uint32_t param);

/* The same units over another number of ranks, 0: as many as now, into `out`, which is initialised
 * and empty. A unit of one rank stays as it is where another has more (experts in groups of one). */
fsdpck_status unit_list_scale(const unit_list *l, uint32_t world_size, unit_list *out,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether its ranks share a flat parameter. A group of one rank does not: torch takes NO_SHARD for
 * it, whose state dicts hold the original parameters. */
bool unit_is_sharded(const unit *u);

/* torch's `aligned_numel` for a compute dtype: 16 bytes' worth of elements. */
uint32_t unit_alignment(dtype compute);

/* A rank of the sharding group. */
unit_shard unit_shard_of(const unit *u, uint32_t rank);
unit_param_range unit_param_range_of(const unit_list *l, const unit *u, uint32_t k, uint32_t rank);
/* The parameters that a rank may have pieces of: k in [*first, *end). Those of no elements may be in
 * or out. So all pieces of all ranks cost one search a rank. */
void unit_params_of_rank(const unit_list *l, const unit *u, uint32_t rank, uint32_t *first,
                         uint32_t *end);

/* What of a parameter a rank's shard holds: one row of torch's FlatParamShardMetadata (names, shapes,
 * strides, contiguities, numels and inclusive offsets of the parameters in a shard; torch 2.0 and
 * newer). From *next = 0 until false:
 *
 *     uint32_t next = 0;
 *     unit_shard_param p;
 *     while (unit_shard_param_next(l, u, rank, &next, &p))
 *         unit_name(l, p.param->fqn, &n), unit_param_shape(l, p.param), p.first, p.last */
typedef struct unit_shard_param {
    const unit_param *param;
    uint64_t strides[NDIM_MAX]; /* those of dims of one element are of no account */
    bool contiguous;            /* row-major */
    int64_t first,
        last; /* elements of it in memory order, both in the shard; none: last is first - 1 */
} unit_shard_param;

bool unit_shard_param_next(const unit_list *l, const unit *u, uint32_t rank, uint32_t *next,
                           unit_shard_param *out);

/* The boxes, at most 2*ndim-1, that elements [begin, end) of a parameter, in memory order, are;
 * set up with unit_boxes_init, call until false; do not copy it in between, nor add to the list.
 * offsets and sizes are those of the parameter's own dims; flat is the position of the box's first
 * element in the parameter's memory order; the box's elements lie there without gaps, outermost dim
 * first as in `order`. */
typedef struct unit_boxes {
    box_cut cut;
    uint64_t stored[NDIM_MAX]; /* sizes in memory order */
    const uint64_t *order;     /* NULL: row-major */
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    uint64_t flat;
} unit_boxes;

void unit_boxes_init(unit_boxes *b, const unit_list *l, const unit_param *p, uint64_t begin,
                     uint64_t end);
bool unit_boxes_next(unit_boxes *b);

#endif
