/* unit.h: the parameters that one FSDP1 unit flattens, their order, and each rank's shard.
 *
 * A unit is a fully sharded module with its flat parameter: the module's parameters, except nested
 * units and ignored ones, concatenated in one 1-dim tensor and sharded evenly over the ranks. Units
 * come from a model description (model.h) or from a list (unit_json.h):
 *
 *     unit_list l;
 *     unit_list_init(&l, &budget);
 *     RETURN_IF(unit_list_add(&l, &proto, "blk", 3, "_flat_param", 11, err));
 *     RETURN_IF(unit_list_add_param(&l, "blk.a.weight", 12, 2, shape, NULL, err));   // flat order
 *     RETURN_IF(unit_list_add_shared(&l, "head.weight", 11, "emb.weight", 10, err));
 *     RETURN_IF(unit_list_close(&l, err));                    // computes offsets, padding, totals
 *     ...
 *     const unit *u = unit_at(&l, i);
 *     unit_shard s = unit_shard_of(u, rank);                  // its elements and its padding
 *     for (uint32_t k = 0; k < u->nparams; k++)
 *         unit_param_range p = unit_param_range_of(&l, u, k, rank);       // part of parameter k
 *
 * All counts are in elements. With use_orig_params each parameter begins at a multiple of
 * `alignment` and the end is padded to a multiple of the world size; this padding has the value 42
 * (torch 2.1 and newer; 2.0 has none: alignment 0). Without use_orig_params there is no inner
 * padding. The last ranks' shards are filled with zeros, which a state dict omits. A parameter that
 * is not row-major in memory (channels-last) is flattened in memory order from torch 2.6 on, and in
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

/* torch's name: "FULL_SHARD", ... */
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

/* Another name of a flattened parameter. */
typedef struct unit_shared {
    uint32_t fqn;
    uint32_t same_as; /* fqn of the flattened parameter, possibly of another unit */
} unit_shared;

typedef struct unit {
    uint32_t prefix;    /* name id: path of the fully sharded module, "" for the root */
    uint32_t flat_name; /* "_flat_param"; "flat_param" in torch 1.13 */
    uint8_t dtype;      /* of the flat parameter */
    uint8_t compute;    /* dtype of the all-gather; DTYPE_NONE: dtype */
    uint8_t strategy;   /* of sharding_strategy; only for reports */
    bool use_orig_params;
    bool unsharded;      /* NO_SHARD: each rank has all of it; world_size then only affects
                          * padding */
    bool keyed;          /* `prefix` is the whole key of its flat parameter: shard_metadata.h */
    bool row_major;      /* written by torch before 2.6: strides are ignored */
    uint32_t alignment;  /* elements; 0: none */
    uint32_t world_size; /* ranks that share it: of the sharding group, not of the whole job */
    uint32_t first_param, nparams;
    uint32_t first_shared, nshared;
    uint64_t total;      /* elements with inner and world padding, without the ranks' own padding */
    uint64_t shard_size; /* ceil(total / world_size), the same on all ranks; unsharded: total */
} unit;

typedef struct unit_list {
    budget *owner;
    strtab names;
    vec units;  /* unit, in the order of traversal */
    vec params; /* unit_param */
    vec shared; /* unit_shared */
    vec dims;   /* uint64_t */
    vec uses;   /* of each name id: the item with this name */
    bool open;  /* the last unit may still grow */
} unit_list;

/* Elements of the flat parameter on a rank. */
typedef struct unit_shard {
    uint64_t begin, end; /* end - begin + padding == shard_size */
    uint64_t padding;    /* zeros at the end (torch: _shard_numel_padded) */
} unit_shard;

/* Part of one parameter on a rank: torch's _shard_param_infos, with an exclusive end. */
typedef struct unit_param_range {
    bool in_shard;
    uint64_t shard_offset; /* of its first element in the rank's shard */
    uint64_t begin, end;   /* elements of the parameter, in memory order */
} unit_param_range;

void unit_list_init(unit_list *l, budget *owner);
void unit_list_release(unit_list *l);

/* Uses dtype, compute, strategy, use_orig_params, unsharded, row_major, alignment and world_size of
 * proto; world_size 1 or more. alignment is used only with use_orig_params. MODEL-NAME-DUP if
 * another unit has the prefix. */
fsdpck_status unit_list_add(unit_list *l, const unit *proto, const char *prefix,
                            size_t prefix_nbytes, const char *flat_name, size_t flat_name_nbytes,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds to the last unit, in flat order. strides: in elements, NULL if contiguous; they must be
 * those of some order of the dims without gaps, else UNSUPPORTED (ignored by a row_major unit).
 * BADINPUT: MODEL-SHAPE for too many dims or sizes over 63 bits, MODEL-NAME-DUP if the FQN is in
 * the list. */
fsdpck_status unit_list_add_param(unit_list *l, const char *fqn, size_t nbytes, unsigned ndim,
                                  const uint64_t *shape, const uint64_t *strides,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds to the last unit. `same_as` must be a parameter of the list by unit_list_seal. */
fsdpck_status unit_list_add_shared(unit_list *l, const char *fqn, size_t nbytes,
                                   const char *same_as, size_t same_as_nbytes,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Computes the offsets of the last unit's parameters and the unit's totals. MODEL-SHAPE if the
 * total exceeds 63 bits. */
fsdpck_status unit_list_close(unit_list *l, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Call after the last unit: every same_as must be a parameter of the list (MODEL-TIE). */
fsdpck_status unit_list_seal(unit_list *l, fsdpck_error *err) FSDPCK_MUST_CHECK;

uint32_t unit_count(const unit_list *l);
/* Largest world_size of a unit, at least 1. */
uint32_t unit_list_largest_group(const unit_list *l);
const unit *unit_at(const unit_list *l, uint32_t i);
/* k counts from 0 within the unit. */
const unit_param *unit_param_at(const unit_list *l, const unit *u, uint32_t k);
const unit_shared *unit_shared_at(const unit_list *l, const unit *u, uint32_t k);
const uint64_t *unit_param_shape(const unit_list *l, const unit_param *p);
/* For a permuted parameter: strides with its order of dims, ndim of them. */
void unit_param_strides(const unit_list *l, const unit_param *p, uint64_t *strides);
const char *unit_name(const unit_list *l, uint32_t name_id, size_t *nbytes);

/* The unit of this module; and the parameter with this name or, for a shared name, the one that it
 * refers to, with its unit (may be NULL). NULL if unknown. */
const unit *unit_list_find(const unit_list *l, const char *prefix, size_t nbytes);
const unit_param *unit_list_find_param(const unit_list *l, const char *fqn, size_t nbytes,
                                       const unit **of);

/* The unit of a parameter, by its index in unit_list.params. */
const unit *unit_of_param(const unit_list *l, uint32_t param);

/* Writes the same units over a different number of ranks, 0: unchanged, into `out`, which must be
 * initialized and empty. A unit of one rank is unchanged if another has more (experts in groups of
 * one). */
fsdpck_status unit_list_scale(const unit_list *l, uint32_t world_size, unit_list *out,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether its ranks share a flat parameter. A group of one rank does not: torch uses NO_SHARD for
 * it, whose state dicts hold the original parameters. */
bool unit_is_sharded(const unit *u);

/* torch's `aligned_numel` for a compute dtype: the number of elements in 16 bytes. */
uint32_t unit_alignment(dtype compute);

/* rank: of the sharding group. */
unit_shard unit_shard_of(const unit *u, uint32_t rank);
unit_param_range unit_param_range_of(const unit_list *l, const unit *u, uint32_t k, uint32_t rank);
/* The parameters with possible elements on a rank: k in [*first, *end). Those without elements may
 * be included. Hence all shards of all ranks cost one search per rank. */
void unit_params_of_rank(const unit_list *l, const unit *u, uint32_t rank, uint32_t *first,
                         uint32_t *end);

/* Iterator over the boxes, at most 2*ndim-1, of elements [begin, end) of a parameter in memory
 * order. Set up with unit_boxes_init, call until false; do not copy it in between, nor add to the
 * list. offsets and sizes refer to the parameter's own dims; flat is the position of the box's
 * first element in the parameter's memory order. The box's elements are contiguous there, outermost
 * dim first as in `order`. */
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
