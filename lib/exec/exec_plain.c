/* Data that is copied unchanged, in runs that are not short: threads copy it, whatever the engine. */
#include "exec/exec_internal.h"

/* Bytes that are consecutive on both sides, of one segment; all of them if it is a single run. */
static uint64_t run_nbytes(const struct exec *x, const segment_walk *seg, uint64_t itemsize)
{
    uint64_t src[NDIM_MAX];
    strided s = {.ndim = seg->ndim};
    exec_chunk_strides(x, seg->src_chunk, src);
    for (unsigned d = 0; d < seg->ndim; d++) {
        s.sizes[d] = seg->sizes[d];
        s.src_strides[d] = src[d] * itemsize;
        s.dst_strides[d] = seg->dst_strides[d] * itemsize;
    }
    strided_collapse(&s);
    if (strided_is_run(&s, itemsize, itemsize))
        return UINT64_MAX;
    const unsigned last = s.ndim - 1;
    const bool adjacent = s.src_strides[last] == itemsize && s.dst_strides[last] == itemsize;
    return adjacent ? s.sizes[last] * itemsize : itemsize;
}

bool exec_elements_are_plain(const struct exec *x, uint64_t target_chunk, uint64_t first_elem,
                             uint64_t end_elem)
{
    const catalogue *to = &x->r.target->cat;
    const uint32_t tensor = catalogue_chunk(to, target_chunk)->tensor;
    const uint8_t type = catalogue_tensor(to, tensor)->dtype;
    const uint64_t itemsize = dtype_get((dtype)type)->itemsize_bytes;
    segment_walk seg;
    gather_walk_begin(x, &seg, target_chunk, false, first_elem, end_elem);
    while (segment_walk_next(&seg))
        if (exec_chunk_dtype(x, seg.src_chunk) != (dtype)type ||
            (x->chunk_extents[seg.src_chunk].flags & EXTENT_OPS) ||
            run_nbytes(x, &seg, itemsize) < THIN_NBYTES)
            return false;
    return true;
}

bool exec_range_is_plain(const struct exec *x, const output_range *range)
{
    range_walk walk;
    range_part part;
    range_walk_begin(&walk, x->r.plan, range);
    while (range_walk_next(&walk, &part))
        if (part.kind == RANGE_PART_CHUNK &&
            !exec_elements_are_plain(x, part.chunk, part.first_elem, part.end_elem))
            return false;
    return true;
}
