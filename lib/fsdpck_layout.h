/* fsdpck_layout.h: tensors and bytes per rank of a reshard, computed from metadata only. Part of fsdpck.h;
 * either header may be included alone.
 *
 * Calling sequence:
 *
 *     fsdpck_layout *l;
 *     fsdpck_layout_info info = FSDPCK_INIT(fsdpck_layout_info);
 *     st = fsdpck_layout_new(ctx, src, &options, &l, &err);
 *     fsdpck_layout_get_info(l, &info);
 *     for (i = 0; i < info.tensors; i++) {
 *         fsdpck_layout_get_tensor(l, i, &t);
 *         fsdpck_layout_get_shard(l, i, rank, &shard);
 *     }
 *     fsdpck_layout_get_rank(l, r, &totals);      // totals of one rank
 *     fsdpck_layout_free(l);
 *
 * Shapes, offsets and sizes are in elements; members called nbytes are in bytes. Indices count from 0; for an
 * index out of range, getters return zeros. Ownership and structs: as in fsdpck.h.
 *
 * Source of the rules: torch 2.15, torch/distributed/tensor/placement_types.py (Shard, Replicate and
 * _StridedShard: boxes of a rank) and torch/distributed/fsdp/_fully_shard/_fsdp_param.py (padding of a
 * shard in memory). The boxes are those of the folder that fsdpck_reshard writes with the same options.
 */
#ifndef FSDPCK_LAYOUT_H
#define FSDPCK_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opaque: a layout. */
typedef struct fsdpck_layout fsdpck_layout;

/* Options of fsdpck_layout_new; NULL for a part: its defaults. */
typedef struct fsdpck_layout_options {
    size_t struct_nbytes;
    const fsdpck_select_options *select;     /* as of fsdpck_reshard; objects are ignored */
    const fsdpck_sharding_options *sharding; /* as of fsdpck_reshard */
    const fsdpck_output_options *output;     /* format and the options of one format; not fsdp1 */
} fsdpck_layout_options;

/* Totals over tensors and ranks. */
typedef struct fsdpck_layout_info {
    size_t struct_nbytes;
    const char *mesh;    /* "dp_replicate=2,dp_shard=4" */
    uint64_t world_size; /* ranks */
    uint64_t tensors;    /* limit of the index */
    uint64_t nbytes;     /* of all tensors, each once, without further names of tied ones */
    uint64_t rank_nbytes_min, rank_nbytes_max; /* smallest and largest total of a rank */
    uint64_t rank_min, rank_max;               /* the lowest ranks with these */
    uint64_t rank_nbytes_total;                /* over all ranks, replicas counted */
    uint64_t empty_pieces;                     /* shards without elements */
    uint64_t padding_nbytes;                   /* that FSDP adds in memory, over all ranks */
    /* Training memory of the rank that holds most, in bytes: parameters as stored and gradients of the same
     * size, both with padding, and optimizer state, which has none. Model part only. */
    uint64_t param_nbytes, grad_nbytes, adam_nbytes;
    uint64_t replicated; /* tensors that every rank holds whole */
    /* 1: the source has no optimizer state with parameter names: floating tensors count as trained by
     * Adam, with moments in their dtype. 0: tensors without state in the source have no gradients. */
    int training_assumed;
    uint64_t tied, tied_nbytes; /* further names of tied tensors: in no total but `tensors` */
} fsdpck_layout_info;

/* One tensor of the layout. */
typedef struct fsdpck_layout_tensor {
    size_t struct_nbytes;
    const char *name; /* name in the output; may contain any byte */
    size_t name_nbytes;
    const char *dtype; /* torch's name */
    unsigned ndim;
    const uint64_t *shape;   /* ndim sizes */
    uint64_t nelems, nbytes; /* of the whole tensor */
    fsdpck_part part;
    const char *placements;   /* "[Replicate(), Shard(0)]"; borrowed until the next call */
    uint64_t distinct_pieces; /* different boxes; replicas count once */
    uint64_t empty_pieces;    /* ranks without elements of it */
    const char *tied_to;      /* first name of the same tensor, or NULL */
    size_t tied_to_nbytes;
} fsdpck_layout_tensor;

/* The shard of one tensor on one rank. */
typedef struct fsdpck_layout_shard {
    size_t struct_nbytes;
    uint64_t offsets[64], sizes[64]; /* ndim of each, in elements */
    uint64_t nbytes;                 /* without padding */
    /* In memory FSDP2 makes the shard of a parameter as large as the first one, and its gradient likewise; 0
     * for optimizer state, which torch makes without padding (zeros_like of the DTensor, torch 2.15). */
    uint64_t padding_nelems;
} fsdpck_layout_shard;

/* Totals of one rank. */
typedef struct fsdpck_layout_rank {
    size_t struct_nbytes;
    uint64_t nbytes, padding_nbytes; /* of its shards; of padding */
    uint64_t tensors, empty_tensors; /* all, tied ones once; without elements here */
    uint64_t param_nbytes, grad_nbytes, adam_nbytes; /* as in fsdpck_layout_info */
} fsdpck_layout_rank;

/* Computes a layout. *out is freed with fsdpck_layout_free; src must outlive it. Errors: USAGE,
 * BADINPUT and UNSUPPORTED as of fsdpck_reshard; UNSUPPORTED (format fsdp1: see fsdpck_units_new). */
FSDPCK_API fsdpck_status fsdpck_layout_new(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                           const fsdpck_layout_options *options,
                                           fsdpck_layout **out,
                                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills *info. */
FSDPCK_API void fsdpck_layout_get_info(const fsdpck_layout *l, fsdpck_layout_info *info);

/* Tensor number `index`, below info.tensors. */
FSDPCK_API void fsdpck_layout_get_tensor(fsdpck_layout *l, uint64_t index, fsdpck_layout_tensor *t);

/* The shard of tensor `index` on `rank`, both below the limits in info. */
FSDPCK_API void fsdpck_layout_get_shard(const fsdpck_layout *l, uint64_t index, uint64_t rank,
                                        fsdpck_layout_shard *shard);

/* Totals of `rank`, below info.world_size. */
FSDPCK_API void fsdpck_layout_get_rank(const fsdpck_layout *l, uint64_t rank,
                                       fsdpck_layout_rank *totals);

/* Frees a layout, before its checkpoint. */
FSDPCK_API void fsdpck_layout_free(fsdpck_layout *l);

#ifdef __cplusplus
}
#endif

#endif
