#include "state/box.h"

uint64_t box_nelems(const uint64_t *sizes, unsigned ndim)
{
    uint64_t n = 1;
    for (unsigned d = 0; d < ndim; d++)
        n *= sizes[d];
    return n;
}

bool box_equal(const uint64_t *offsets_a, const uint64_t *sizes_a, const uint64_t *offsets_b,
               const uint64_t *sizes_b, unsigned ndim)
{
    for (unsigned d = 0; d < ndim; d++)
        if (offsets_a[d] != offsets_b[d] || sizes_a[d] != sizes_b[d])
            return false;
    return true;
}

bool box_intersect(const uint64_t *offsets_a, const uint64_t *sizes_a, const uint64_t *offsets_b,
                   const uint64_t *sizes_b, unsigned ndim, uint64_t *offsets, uint64_t *sizes)
{
    for (unsigned d = 0; d < ndim; d++) {
        const uint64_t end_a = offsets_a[d] + sizes_a[d];
        const uint64_t end_b = offsets_b[d] + sizes_b[d];
        const uint64_t begin = offsets_a[d] > offsets_b[d] ? offsets_a[d] : offsets_b[d];
        const uint64_t end = end_a < end_b ? end_a : end_b;
        if (begin >= end)
            return false;
        offsets[d] = begin;
        sizes[d] = end - begin;
    }
    return true;
}

void box_row_major_strides(const uint64_t *sizes, unsigned ndim, uint64_t *strides)
{
    uint64_t stride = 1;
    for (unsigned d = ndim; d-- > 0;) {
        strides[d] = stride;
        /* As in torch, an empty dim does not make the outer strides 0. */
        stride *= sizes[d] > 0 ? sizes[d] : 1;
    }
}

/* Greedy: from the current position, takes the largest slab of whole inner dims that begins there
 * and ends by `end`. Slabs first grow outwards (each fills one dim), then shrink inwards (each
 * takes the rest of one dim), and share one dim: hence 2*ndim-1. */
bool box_cut_next(box_cut *cut)
{
    if (cut->begin >= cut->end)
        return false;
    const uint64_t at = cut->begin;
    const uint64_t left = cut->end - at;
    cut->flat_out = at;
    if (cut->ndim == 0) {
        cut->begin = cut->end;
        return true;
    }

    uint64_t rest = at; /* position among slabs of dim d and inwards */
    uint64_t stride = 1;
    uint64_t slab = 1; /* stride of the dim that is cut */
    unsigned dim = cut->ndim - 1;
    bool grow = true;
    for (unsigned d = cut->ndim; d-- > 0;) {
        if (grow && at % stride == 0 && left >= stride) {
            dim = d;
            slab = stride;
        } else {
            grow = false;
        }
        cut->offsets_out[d] = rest % cut->sizes[d];
        rest /= cut->sizes[d];
        stride *= cut->sizes[d];
    }

    const uint64_t to_end = cut->sizes[dim] - cut->offsets_out[dim];
    const uint64_t wanted = left / slab;
    const uint64_t count = wanted < to_end ? wanted : to_end;
    for (unsigned d = 0; d < dim; d++)
        cut->sizes_out[d] = 1;
    cut->sizes_out[dim] = count;
    for (unsigned d = dim + 1; d < cut->ndim; d++)
        cut->sizes_out[d] = cut->sizes[d];
    cut->begin = at + count * slab;
    return true;
}
