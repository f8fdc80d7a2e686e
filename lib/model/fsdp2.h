/* fsdp2.h: what FSDP2 makes of one parameter: torch's FSDPParam, in numbers.
 *
 *     fsdp2_spec s = {.ndim = 2, .shape = shape, .world_size = 4, .replicas = 1, .post_forward = 1,
 *                     .orig_dtype = DTYPE_FLOAT32, .param_dtype = DTYPE_BFLOAT16, .torch = {2, 15}};
 *     RETURN_IF(fsdp2_check(&s, err));              // once; the rest cannot fail then
 *     fsdp2_shard shard;
 *     fsdp2_shard_of(&s, rank, &shard);             // (5, 3) on 4, rank 2: 1 row, padded to 2
 *     fsdp2_input in = fsdp2_input_of(&s);          // 6 elements of bfloat16, gathered: 24
 *
 * The sharded parameter is a rank's chunk (torch_chunk.h) of dim `shard_dim`, alone held between steps, in
 * memory padded to the first chunk's size. Its data, cast to param_dtype, are what the rank gives to
 * the all-gather, padding and all; the output is that of all ranks, of which the unsharded parameter
 * is a view. Post-forward it may be cut again, from the gathered flat data, for smaller groups.
 *
 * Sizes and strides are in elements, ndim of each. Source: torch 2.15,
 * torch/distributed/fsdp/_fully_shard/_fsdp_param.py and _fsdp_init.py.
 */
#ifndef FSDPCK_MODEL_FSDP2_H
#define FSDPCK_MODEL_FSDP2_H

#include "base/status.h"
#include "model/model.h"

typedef struct fsdp2_spec {
    unsigned ndim;
    const uint64_t *shape;
    unsigned shard_dim;
    uint64_t world_size;   /* ranks that share it */
    uint64_t replicas;     /* groups of so many ranks (HSDP); 1: one */
    uint64_t post_forward; /* reshard_after_forward: 0 false, 1 true, else ranks */
    uint8_t orig_dtype;
    uint8_t param_dtype, reduce_dtype; /* of the policy, DTYPE_NONE: none */
    model_torch torch;                 /* whose rules for dtypes */
} fsdp2_spec;

/* What a rank holds. */
typedef struct fsdp2_shard {
    uint64_t offset;            /* in shard_dim; that dim's size where the shard is empty */
    uint64_t sizes[NDIM_MAX];   /* sharded_size */
    uint64_t strides[NDIM_MAX]; /* contiguous_sharded_stride */
    uint64_t padded[NDIM_MAX];  /* padded_sharded_param_size, the same on all ranks */
    uint64_t nelems, padded_nelems;
    /* After forward, where the group is a smaller one: else as above, or the whole. */
    uint64_t post_sizes[NDIM_MAX];   /* sharded_post_forward_size */
    uint64_t post_strides[NDIM_MAX]; /* contiguous_sharded_post_forward_stride */
    uint64_t post_begin, post_end;   /* of the gathered flat data */
} fsdp2_shard;

/* One tensor of an all-gather. */
typedef struct fsdp2_input {
    uint8_t dtype;
    uint64_t nelems;        /* that a rank gives */
    uint64_t output_nelems; /* nelems x world_size */
} fsdp2_input;

/* BADINPUT: MODEL-SHAPE (no dims, a shard_dim that is none), MODEL-WORLD (no rank; post_forward is
 * no factor of the group). UNSUPPORTED: LAYOUT-UNEVEN (a dim above 0 that does not divide evenly,
 * which torch refuses). LIMIT: what is gathered does not fit 63 bits. */
fsdpck_status fsdp2_check(const fsdp2_spec *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same of a tensor of fsdp2_extension_of. */
fsdpck_status fsdp2_check_extension(const fsdp2_spec *s, unsigned ndim, const uint64_t *sizes,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

/* rank: of all ranks, of which world_size in a row make a group. */
void fsdp2_shard_of(const fsdp2_spec *s, uint64_t rank, fsdp2_shard *shard);
uint64_t fsdp2_padded_nelems(const fsdp2_spec *s);

/* Ranks that share a parameter between forward and backward: 1 where each keeps it whole. Their mesh
 * is (ranks in all / that, that), the first dim replicated. */
uint64_t fsdp2_post_forward_size(const fsdp2_spec *s);

/* param_dtype and reduce_dtype of the policy, DTYPE_NONE where they ask for nothing: param_dtype
 * equal to the original, or, from torch 2.12 on, the original no floating dtype; from 2.7 to
 * 2.14 reduce_dtype equal to param_dtype as given. */
uint8_t fsdp2_param_dtype(const fsdp2_spec *s);
uint8_t fsdp2_reduce_dtype(const fsdp2_spec *s);
/* In which gradients are reduced then: where no reduce_dtype is left, the original from torch 2.15
 * on, and what they are computed in before. */
uint8_t fsdp2_grad_dtype(const fsdp2_spec *s);

/* The parameter's own data, or, of dtype `of`, `sizes` (ndim of them) of an extension's tensor, whose dim shard_dim
 * (0 where it has no such dim) is cut and padded like the parameter's; of one without dims each rank
 * gives one element. */
fsdp2_input fsdp2_input_of(const fsdp2_spec *s);
fsdp2_input fsdp2_extension_of(const fsdp2_spec *s, uint8_t of, unsigned ndim,
                               const uint64_t *sizes);

#endif
