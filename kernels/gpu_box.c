/* The host's part of a launch. */
#include "kernels/gpu_body.h"

_Static_assert(sizeof(gpu_box) == 64, "a box is 64 bytes");

static unsigned log2_of(uint64_t all, unsigned most)
{
    unsigned n = 0;
    while (n < most && (all >> n & 1) == 0)
        n++;
    return n;
}

/* Dims of the box: as the copy's, the last one in units of `unit` bytes if it is a run of them. */
static void put_dims(gpu_box *box, uint64_t *dims, const gpu_copy *c)
{
    box->ndim = (uint8_t)c->ndim;
    for (unsigned d = 0; d < c->ndim; d++) {
        dims[d] = c->sizes[d];
        dims[c->ndim + d] = c->src_strides[d];
        dims[2 * c->ndim + d] = c->dst_strides[d];
    }
}

static void put_run(gpu_box *box, uint64_t *dims, const gpu_copy *c, unsigned outer, uint64_t run,
                    uint64_t unit)
{
    const unsigned n = outer + 1;
    box->ndim = (uint8_t)n;
    for (unsigned d = 0; d < outer; d++) {
        dims[d] = c->sizes[d];
        dims[n + d] = c->src_strides[d];
        dims[2 * n + d] = c->dst_strides[d];
    }
    dims[outer] = run / unit;
    dims[n + outer] = unit;
    dims[2 * n + outer] = unit;
}

/* Copies: rows if they are long, otherwise units as wide as all offsets and strides allow. */
static void prepare_copy(gpu_box *box, uint64_t *dims, const gpu_copy *c, uint64_t count)
{
    const unsigned last = c->ndim - 1;
    const bool adjacent = c->ndim > 0 && c->src_strides[last] == c->from_nbytes &&
                          c->dst_strides[last] == c->from_nbytes;
    const unsigned outer = adjacent ? last : c->ndim;
    const uint64_t run = adjacent ? c->sizes[last] * c->from_nbytes : c->from_nbytes;
    uint64_t all = c->src | c->dst | run;
    if (run >= GPU_ROW_NBYTES) {
        box->way = GPU_WAY_ROWS;
        box->nelems = count * c->from_nbytes;
        put_run(box, dims, c, outer, run, 1);
        return;
    }
    for (unsigned d = 0; d < outer; d++)
        all |= c->src_strides[d] | c->dst_strides[d];
    box->way = GPU_WAY_UNITS;
    box->src_log2 = box->dst_log2 = (uint8_t)log2_of(all, 4);
    box->nelems = count * c->from_nbytes >> box->dst_log2;
    put_run(box, dims, c, outer, run, (uint64_t)1 << box->dst_log2);
}

static void prepare_convert(gpu_box *box, uint64_t *dims, const gpu_copy *c, uint64_t count)
{
    uint64_t src = c->src | (c->from_nbytes > 8 ? 8 : 0);
    uint64_t dst = c->dst | (c->to_nbytes > 8 ? 8 : 0);
    for (unsigned d = 0; d < c->ndim; d++) {
        src |= c->sizes[d] > 1 ? c->src_strides[d] : 0;
        dst |= c->sizes[d] > 1 ? c->dst_strides[d] : 0;
    }
    box->way = GPU_WAY_CONVERT;
    box->src_log2 = (uint8_t)log2_of(src, 3);
    box->dst_log2 = (uint8_t)log2_of(dst, 3);
    box->nelems = count;
    put_dims(box, dims, c);
}

bool gpu_box_prepare(gpu_box *box, uint64_t *dims, const gpu_copy *c)
{
    uint64_t count = 1;
    if (c->ndim >= GPU_DIMS_MAX)
        return false;
    for (unsigned d = 0; d < c->ndim; d++) {
        if (c->sizes[d] > GPU_BOX_NELEMS_MAX / count)
            return false;
        count *= c->sizes[d];
    }
    const bool changes =
        c->from != c->to || c->swap_nbytes > 1 || c->negate || (c->flip[0] | c->flip[1]) != 0;
    if (count > GPU_BOX_NELEMS_MAX / 16)
        return false;
    *box = (gpu_box){.src = c->src,
                     .dst = c->dst,
                     .flip = {c->flip[0], c->flip[1]},
                     .from = (uint8_t)c->from,
                     .to = (uint8_t)c->to,
                     .from_nbytes = (uint8_t)c->from_nbytes,
                     .to_nbytes = (uint8_t)c->to_nbytes,
                     .swap_nbytes = (uint8_t)(c->swap_nbytes > 1 ? c->swap_nbytes : 0),
                     .negate = c->negate};
    if (changes)
        prepare_convert(box, dims, c, count);
    else
        prepare_copy(box, dims, c, count);
    const uint64_t each = box->way == GPU_WAY_ROWS ? GPU_TASK_NBYTES : GPU_TASK_NELEMS;
    box->tasks = (uint32_t)((box->nelems + each - 1) / each);
    return true;
}

uint64_t gpu_sum(const void *bytes, uint64_t nbytes)
{
    return gpu_sum_words(bytes, nbytes, 0, 1);
}
