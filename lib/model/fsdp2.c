#include "model/fsdp2.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/text.h"
#include "layout/torch_chunk.h"

static fsdpck_status check_group(const fsdp2_spec *s, fsdpck_error *err)
{
    if (s->world_size == 0 || s->replicas == 0)
        return FAIL(err, BADINPUT, MODEL_WORLD, "no rank holds the parameter");
    if (s->post_forward < 2 || s->world_size % s->post_forward == 0)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, MODEL_WORLD,
        ("'reshard_after_forward' does not divide the size of the group"),
        (expected, "a factor of %" PRIu64 " rank%s", s->world_size, text_plural(s->world_size)),
        (found, "%" PRIu64, s->post_forward),
        (next, "choose a number of ranks that it divides; torch refuses this one"));
}

/* Checks that a dim can be sharded and that the size of the all-gather fits. */
static fsdpck_status check_cut(const fsdp2_spec *s, unsigned cut, unsigned ndim,
                               const uint64_t *sizes, fsdpck_error *err)
{
    uint64_t gathered = s->world_size;
    bool fits = true;
    for (unsigned d = 0; d < ndim; d++) {
        const uint64_t n = d == cut ? torch_chunk_size(sizes[d], s->world_size) : sizes[d];
        fits = fits && checked_mul(gathered, n, &gathered) && gathered <= INT64_MAX;
    }
    if (!fits)
        return FAIL(err, LIMIT, LIMIT_COUNT, "size of the all-gather exceeds 63 bits");
    if (cut == 0 || sizes[cut] % s->world_size == 0)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, UNSUPPORTED, LAYOUT_UNEVEN, ("FSDP shards dim %u only if it divides evenly", cut),
        (expected, "a multiple of %" PRIu64, s->world_size), (found, "%" PRIu64, sizes[cut]),
        (next, "choose another number of ranks, or dim 0; torch refuses to build the model"));
}

fsdpck_status fsdp2_check(const fsdp2_spec *s, fsdpck_error *err)
{
    RETURN_IF(check_group(s, err));
    if (s->ndim == 0)
        return FAIL_WITH(err, BADINPUT, MODEL_SHAPE,
                         ("fully_shard cannot shard a parameter without dims"),
                         (expected, "at least one dim"), (found, "a 0-dim tensor"),
                         (next, "make it a tensor of one element, or mark it as ignored"));
    if (s->shard_dim >= s->ndim)
        return FAIL_WITH(err, BADINPUT, MODEL_SHAPE, ("'shard_dim' is not a dim of its parameter"),
                         (expected, "less than %u", s->ndim), (found, "%u", s->shard_dim));
    return check_cut(s, s->shard_dim, s->ndim, s->shape, err);
}

fsdpck_status fsdp2_check_extension(const fsdp2_spec *s, unsigned ndim, const uint64_t *sizes,
                                    fsdpck_error *err)
{
    return check_cut(s, s->shard_dim < ndim ? s->shard_dim : 0, ndim, sizes, err);
}

uint64_t fsdp2_post_forward_size(const fsdp2_spec *s)
{
    if (s->post_forward == 1)
        return s->world_size;
    return s->post_forward == 0 ? 1 : s->post_forward;
}

/* Chunk `part` of dim `cut`. An empty chunk keeps its other sizes, with 0 for `empty_dim`. */
static void chunk_sizes(const fsdp2_spec *s, unsigned cut, unsigned empty_dim, uint64_t nparts,
                        uint64_t part, uint64_t *offset, uint64_t *sizes, uint64_t *strides)
{
    uint64_t size;
    torch_chunk_range(s->shape[cut], nparts, part, offset, &size);
    memcpy(sizes, s->shape, s->ndim * sizeof *sizes);
    sizes[cut] = size;
    if (box_nelems(sizes, s->ndim) == 0) {
        sizes[cut] = s->shape[cut];
        sizes[empty_dim] = 0;
    }
    /* torch counts an empty dim as one element here. */
    uint64_t stride = 1;
    for (unsigned d = s->ndim; d-- > 0;) {
        strides[d] = stride;
        stride *= sizes[d] == 0 ? 1 : sizes[d];
    }
}

uint64_t fsdp2_padded_nelems(const fsdp2_spec *s)
{
    uint64_t nelems = torch_chunk_size(s->shape[s->shard_dim], s->world_size);
    for (unsigned d = 0; d < s->ndim; d++)
        nelems *= d == s->shard_dim ? 1 : s->shape[d];
    return nelems;
}

void fsdp2_shard_of(const fsdp2_spec *s, uint64_t rank, fsdp2_shard *shard)
{
    memset(shard, 0, sizeof *shard);
    chunk_sizes(s, s->shard_dim, s->shard_dim, s->world_size, rank % s->world_size, &shard->offset,
                shard->sizes, shard->strides);
    memcpy(shard->padded, s->shape, s->ndim * sizeof *shard->padded);
    shard->padded[s->shard_dim] = torch_chunk_size(s->shape[s->shard_dim], s->world_size);
    shard->nelems = box_nelems(shard->sizes, s->ndim);
    shard->padded_nelems = fsdp2_padded_nelems(s);
    const uint64_t group = fsdp2_post_forward_size(s);
    const uint64_t gathered = shard->padded_nelems * s->world_size;
    uint64_t offset;
    /* Always dim 0: the data are flat, and this view of them is not used for computation. */
    chunk_sizes(s, 0, s->shard_dim, group, rank % group, &offset, shard->post_sizes,
                shard->post_strides);
    shard->post_begin = gathered / group * (rank % group);
    shard->post_end = shard->post_begin + gathered / group;
}

/* Whether the rules of torch 2.`minor` or newer apply. */
static bool is_from(const fsdp2_spec *s, uint32_t minor)
{
    return s->torch.major > 2 || (s->torch.major == 2 && s->torch.minor >= minor);
}

uint8_t fsdp2_param_dtype(const fsdp2_spec *s)
{
    const bool floats = dtype_get((dtype)s->orig_dtype)->kind == DTYPE_IS_FLOAT;
    const bool casts = s->param_dtype != s->orig_dtype && (floats || !is_from(s, 12));
    return casts ? s->param_dtype : DTYPE_NONE;
}

uint8_t fsdp2_reduce_dtype(const fsdp2_spec *s)
{
    const bool drops = is_from(s, 7) && !is_from(s, 15);
    return drops && s->reduce_dtype == s->param_dtype ? DTYPE_NONE : s->reduce_dtype;
}

uint8_t fsdp2_grad_dtype(const fsdp2_spec *s)
{
    const uint8_t reduce = fsdp2_reduce_dtype(s);
    const uint8_t param = fsdp2_param_dtype(s);
    if (reduce != DTYPE_NONE)
        return reduce;
    return is_from(s, 15) || param == DTYPE_NONE ? s->orig_dtype : param;
}

fsdp2_input fsdp2_input_of(const fsdp2_spec *s)
{
    const uint8_t cast = fsdp2_param_dtype(s);
    const uint64_t nelems = fsdp2_padded_nelems(s);
    return (fsdp2_input){cast == DTYPE_NONE ? s->orig_dtype : cast, nelems, nelems * s->world_size};
}

fsdp2_input fsdp2_extension_of(const fsdp2_spec *s, uint8_t of, unsigned ndim,
                               const uint64_t *sizes)
{
    const unsigned cut = s->shard_dim < ndim ? s->shard_dim : 0;
    uint64_t nelems = 1;
    for (unsigned d = 0; d < ndim; d++)
        nelems *= d == cut ? torch_chunk_size(sizes[d], s->world_size) : sizes[d];
    return (fsdp2_input){of, nelems, nelems * s->world_size};
}
