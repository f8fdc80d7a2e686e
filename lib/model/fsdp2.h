/* fsdp2.h: FSDP2's treatment of one parameter: torch's FSDPParam, in numbers.
 *
 *     fsdp2_spec s = {.ndim = 2, .shape = shape, .world_size = 4, .replicas = 1, .post_forward = 1,
 *                     .orig_dtype = DTYPE_FLOAT32, .param_dtype = DTYPE_BFLOAT16, .torch = {2, 15}};
 *     RETURN_IF(fsdp2_check(&s, err));              // once; the other calls cannot fail then
 *     fsdp2_shard shard;
 *     fsdp2_shard_of(&s, rank, &shard);             // (5, 3) on 4, rank 2: 1 row, padded to 2
 *     fsdp2_input in = fsdp2_input_of(&s);          // 6 elements of bfloat16, gathered: 24
 *
 * The sharded parameter is a rank's chunk (torch_chunk.h) of dim `shard_dim`, in memory padded to
 * the first chunk's size. Between steps a rank holds nothing else of it. Its data, cast to
 * param_dtype and including the padding, is the rank's input to the all-gather. The output is that
 * of all ranks, and the unsharded parameter is a view of it. After forward the gathered flat data
 * may be sharded again, for smaller groups.
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
    uint64_t replicas;     /* number of groups of that size (HSDP); 1: one */
    uint64_t post_forward; /* reshard_after_forward: 0 false, 1 true, else ranks */
    uint8_t orig_dtype;
    uint8_t param_dtype, reduce_dtype; /* of the policy, DTYPE_NONE: none */
    model_torch torch;                 /* release whose dtype rules apply */
} fsdp2_spec;

/* The shard of a rank. */
typedef struct fsdp2_shard {
    uint64_t offset;            /* in shard_dim; that dim's size if the shard is empty */
    uint64_t sizes[NDIM_MAX];   /* sharded_size */
    uint64_t strides[NDIM_MAX]; /* contiguous_sharded_stride */
    uint64_t padded[NDIM_MAX];  /* padded_sharded_param_size, the same on all ranks */
    uint64_t nelems, padded_nelems;
    /* After forward, if the group is smaller; else as above, or the whole. */
    uint64_t post_sizes[NDIM_MAX];   /* sharded_post_forward_size */
    uint64_t post_strides[NDIM_MAX]; /* contiguous_sharded_post_forward_stride */
    uint64_t post_begin, post_end;   /* of the gathered flat data */
} fsdp2_shard;

/* One tensor of an all-gather. */
typedef struct fsdp2_input {
    uint8_t dtype;
    uint64_t nelems;        /* per rank */
    uint64_t output_nelems; /* nelems x world_size */
} fsdp2_input;

/* BADINPUT: MODEL-SHAPE (no dims, an invalid shard_dim), MODEL-WORLD (no rank; post_forward does
 * not divide the group). UNSUPPORTED: LAYOUT-UNEVEN (a dim above 0 that does not divide evenly,
 * which torch refuses). LIMIT: the size of the all-gather exceeds 63 bits. */
fsdpck_status fsdp2_check(const fsdp2_spec *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same for a tensor of fsdp2_extension_of. */
fsdpck_status fsdp2_check_extension(const fsdp2_spec *s, unsigned ndim, const uint64_t *sizes,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

/* rank: among all ranks; each world_size consecutive ranks form a group. */
void fsdp2_shard_of(const fsdp2_spec *s, uint64_t rank, fsdp2_shard *shard);
uint64_t fsdp2_padded_nelems(const fsdp2_spec *s);

/* Ranks that share a parameter between forward and backward: 1 if each keeps it whole. Their mesh
 * is (ranks in all / that, that), with the first dim replicated. */
uint64_t fsdp2_post_forward_size(const fsdp2_spec *s);

/* param_dtype and reduce_dtype of the policy, DTYPE_NONE if they change nothing: param_dtype equal
 * to the original, or, from torch 2.12 on, a non-floating original; from 2.7 to 2.14 reduce_dtype
 * equal to the given param_dtype. */
uint8_t fsdp2_param_dtype(const fsdp2_spec *s);
uint8_t fsdp2_reduce_dtype(const fsdp2_spec *s);
/* Dtype of the gradient reduction: without a reduce_dtype the original from torch 2.15 on, and the
 * compute dtype before. */
uint8_t fsdp2_grad_dtype(const fsdp2_spec *s);

/* The parameter's own data, or, with dtype `of` and `sizes` (ndim of them), a tensor of an
 * extension. The extension tensor's dim shard_dim (0 if it has no such dim) is sharded and padded
 * like the parameter's; for one without dims each rank contributes one element. */
fsdp2_input fsdp2_input_of(const fsdp2_spec *s);
fsdp2_input fsdp2_extension_of(const fsdp2_spec *s, uint8_t of, unsigned ndim,
                               const uint64_t *sizes);

#endif
