/* Chunks whose elements are computed box by box: directly at their place in the tile if they are consecutive
 * there, else in staging. */
#include "exec/exec_internal.h"

static fsdpck_status read_box(worker *w, const segment_walk *seg, const uint64_t *at,
                              const uint64_t *sizes, uint8_t *dst, fsdpck_error *err)
{
    const source *src = w->x->r.source;
    uint64_t offsets[NDIM_MAX];
    for (unsigned d = 0; d < seg->ndim; d++)
        offsets[d] = seg->src_offsets[d] + at[d];
    w->stats.bytes_read += box_nelems(sizes, seg->ndim) *
                           dtype_get(exec_chunk_dtype(w->x, seg->src_chunk))->itemsize_bytes;
    const fsdpck_status st = src->read_box(src->ctx, seg->src_chunk, offsets, sizes, dst, err);
    if (st != FSDPCK_OK)
        exec_add_chunk_context(w->x, seg->src_chunk, err);
    return st;
}

/* A part through staging. */
static fsdpck_status read_part(worker *w, const segment_walk *seg, const element_ops *c,
                               const box_split *part, uint8_t *dst, const uint64_t *dst_strides,
                               fsdpck_error *err)
{
    const uint64_t itemsize = dtype_get(c->from)->itemsize_bytes;
    strided s = {.ndim = seg->ndim};
    RETURN_IF(read_box(w, seg, part->at, part->part, w->staging, err));
    box_row_major_strides(part->part, seg->ndim, s.src_strides);
    for (unsigned d = 0; d < seg->ndim; d++) {
        s.sizes[d] = part->part[d];
        s.src_strides[d] *= itemsize;
        s.dst_strides[d] = dst_strides[d];
        dst += part->at[d] * dst_strides[d];
    }
    strided_collapse(&s);
    place_by_threads.box(w, c, &s, dst, w->staging);
    return FSDPCK_OK;
}

fsdpck_status gather_boxes(worker *w, const segment_walk *seg, const element_ops *c, int64_t dst_at,
                           const uint64_t *dst_strides, fsdpck_error *err)
{
    const uint64_t itemsize = dtype_get(c->from)->itemsize_bytes;
    static const uint64_t zeros[NDIM_MAX];
    uint8_t *dst = w->gather.base + dst_at;
    strided s = {.ndim = seg->ndim};
    uint64_t strides[NDIM_MAX];
    box_split part;
    w->gather.touched = true;
    if (!gather_is_own(w, seg->src_chunk, 0, 1))
        return FSDPCK_OK;
    box_row_major_strides(seg->sizes, seg->ndim, strides);
    for (unsigned d = 0; d < seg->ndim; d++) {
        strides[d] *= itemsize;
        s.sizes[d] = seg->sizes[d];
        s.src_strides[d] = strides[d];
        s.dst_strides[d] = dst_strides[d];
    }
    strided_collapse(&s);
    if (element_ops_is_copy(c) && strided_is_run(&s, itemsize, itemsize) &&
        (uintptr_t)dst % itemsize == 0)
        return read_box(w, seg, zeros, seg->sizes, dst, err);
    box_split_begin(&part, seg->ndim, seg->sizes, strides, itemsize, w->x->staging_nbytes);
    while (box_split_next(&part))
        RETURN_IF(read_part(w, seg, c, &part, dst, dst_strides, err));
    return FSDPCK_OK;
}
