/* The host's part of a launch. */
#include "kernels/gpu_body.h"

_Static_assert(sizeof(gpu_box) == 64, "a box is 64 bytes");

/* A line takes the instructions of so many units, by the log2 of what divides all offsets: counted in the loops
 * for sm_90, with all branches. */
static const uint8_t line_units[] = {6, 5, 3};

static unsigned log2_of(uint64_t all, unsigned most)
{
    unsigned n = 0;
    while (n < most && (all >> n & 1) == 0)
        n++;
    return n;
}

static gpu_dim dim_of(uint64_t size, uint64_t src, uint64_t dst)
{
    unsigned log2 = 0; /* rounded up; the magic number is then from 2^31 to 2^32 - 1 */
    while ((uint64_t)1 << log2 < size)
        log2++;
    return (gpu_dim){.size = (uint32_t)size,
                     .magic = (uint32_t)((((uint64_t)1 << (31 + log2)) + size - 1) / size),
                     .shift = 31 + log2,
                     .src = (uint32_t)src,
                     .dst = (uint32_t)dst};
}

static void put_dims(gpu_box *box, gpu_dim *dims, const gpu_copy *c)
{
    box->ndim = (uint8_t)c->ndim;
    for (unsigned d = 0; d < c->ndim; d++)
        dims[d] = dim_of(c->sizes[d], c->src_strides[d], c->dst_strides[d]);
}

/* The outer dims, and a run of units. */
static void put_run(gpu_box *box, gpu_dim *dims, const gpu_copy *c, unsigned outer, uint64_t run,
                    uint64_t unit)
{
    box->ndim = (uint8_t)(outer + 1);
    for (unsigned d = 0; d < outer; d++)
        dims[d] = dim_of(c->sizes[d], c->src_strides[d], c->dst_strides[d]);
    dims[outer] = dim_of(run / unit, unit, unit);
}

/* Lines of 16 bytes that a run touches at most. */
static uint64_t lines_of(const gpu_copy *c, unsigned outer, uint64_t run)
{
    uint64_t strides = 0;
    for (unsigned d = 0; d < outer; d++)
        strides |= c->dst_strides[d];
    const uint64_t each = (uint64_t)1
                          << log2_of(strides, 4); /* runs begin at multiples of it apart */
    return (c->dst % each + 16 - each + run + 15) / 16;
}

/* Copies: rows if they are long, otherwise units as wide as all offsets and strides allow, or lines. */
static void prepare_copy(gpu_box *box, gpu_dim *dims, const gpu_copy *c, uint64_t count)
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
    const uint64_t lines = lines_of(c, outer, run);
    if (box->dst_log2 > 2 || lines * line_units[box->dst_log2] > run >> box->dst_log2) {
        put_run(box, dims, c, outer, run, (uint64_t)1 << box->dst_log2);
        return;
    }
    box->way = GPU_WAY_LINES;
    box->nelems = count * c->from_nbytes / run * lines;
    put_run(box, dims, c, outer, run, 1);
    const gpu_dim by_lines = dim_of(lines, 1, 1);
    dims[outer].magic = by_lines.magic;
    dims[outer].shift = by_lines.shift;
    dims[outer].lines = (uint32_t)lines;
}

/* Whether all offsets inside the box fit the 32 bits of the device's arithmetic. */
static bool spans_little(const gpu_copy *c)
{
    uint64_t src = 0, dst = 0;
    for (unsigned d = 0; d < c->ndim; d++) {
        const uint64_t steps = c->sizes[d] - 1;
        if (steps > 0 && (c->src_strides[d] > GPU_BOX_SPAN_MAX / steps ||
                          c->dst_strides[d] > GPU_BOX_SPAN_MAX / steps))
            return false;
        src += steps * c->src_strides[d];
        dst += steps * c->dst_strides[d];
    }
    return src <= GPU_BOX_SPAN_MAX && dst <= GPU_BOX_SPAN_MAX;
}

static void prepare_convert(gpu_box *box, gpu_dim *dims, const gpu_copy *c, uint64_t count)
{
    uint64_t src = c->src | (c->from_nbytes > 8 ? 8 : 0);
    uint64_t dst = c->dst | (c->to_nbytes > 8 ? 8 : 0);
    for (unsigned d = 0; d < c->ndim; d++) {
        src |= c->sizes[d] > 1 ? c->src_strides[d] : 0;
        dst |= c->sizes[d] > 1 ? c->dst_strides[d] : 0;
    }
    const bool casts = c->from != c->to;
    const bool adjacent = c->ndim > 0 && c->src_strides[c->ndim - 1] == c->from_nbytes &&
                          c->dst_strides[c->ndim - 1] == c->to_nbytes;
    box->src_log2 = (uint8_t)log2_of(src, 3);
    box->dst_log2 = (uint8_t)log2_of(dst, 3);
    const bool aligned = c->from_nbytes >> box->src_log2 <= 1 && c->to_nbytes >> box->dst_log2 <= 1;
    box->way = !casts ? GPU_WAY_CHANGE
               : adjacent && aligned && c->swap_nbytes <= 1 && c->flip[0] == 0 &&
                       c->sizes[c->ndim - 1] >= GPU_ROW_NELEMS
                   ? GPU_WAY_CAST_ROWS
                   : GPU_WAY_CAST;
    box->nelems = count;
    put_dims(box, dims, c);
}

bool gpu_box_prepare(gpu_box *box, gpu_dim *dims, const gpu_copy *c)
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
    if (count > GPU_BOX_NELEMS_MAX / 16 || !spans_little(c))
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
