/* average_cut.c: the boxes of the second catalogue: runs of rows of about chunk_nbytes. */
#include <stdlib.h>
#include <string.h>

#include "average/average_internal.h"

typedef struct row_range {
    uint64_t begin, end;
} row_range;

static int by_begin(const void *left, const void *right)
{
    const row_range *a = left, *b = right;
    ORDER_BY(a->begin, b->begin);
    ORDER_BY(a->end, b->end);
    return 0;
}

/* Rows of dim 0 of the chunks of the inputs that are streams, which are decoded from their beginning. */
static fsdpck_status list_streams(const averager *v, const average_tensor *t, vec *ranges,
                                  fsdpck_error *err)
{
    for (size_t i = 0; i < v->count; i++) {
        const catalogue *c = v->inputs[i].cat;
        const uint32_t tensor = average_tensor_of(v, t, i);
        const box_index *x = box_reader_index(&v->readers[i], tensor);
        bool is_stream;
        RETURN_IF(box_first_is_stream(&v->readers[i], tensor, &is_stream, err));
        for (uint32_t k = 0; is_stream && k < x->count; k++) {
            uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
            catalogue_chunk_box(c, x->first_chunk + x->order[k], offsets, sizes);
            RETURN_IF(vec_add(ranges, &(row_range){offsets[0], offsets[0] + sizes[0]}, err));
        }
    }
    if (ranges->count > 1)
        qsort(ranges->items, ranges->count, sizeof(row_range), by_begin);
    return FSDPCK_OK;
}

/* Boxes of whole rows that divide no stream. */
static fsdpck_status cut_rows(const averager *v, const average_tensor *t, const vec *ranges,
                              uint64_t most, average_add_fn add, void *ctx, fsdpck_error *err)
{
    const cat_tensor *ct = catalogue_tensor(v->from->cat, t->tensor);
    const uint64_t *shape = catalogue_shape(v->from->cat, t->tensor);
    const uint64_t row = box_nelems(shape + 1, ct->ndim - 1u);
    const uint64_t step = row >= most ? 1 : most / row;
    uint64_t offsets[NDIM_MAX] = {0}, sizes[NDIM_MAX];
    size_t next = 0;
    uint64_t reach = 0; /* of the streams that begin before the end of the box */
    memcpy(sizes, shape, ct->ndim * sizeof *sizes);
    while (offsets[0] < shape[0]) {
        uint64_t end = shape[0] - offsets[0] > step ? offsets[0] + step : shape[0];
        for (; next < ranges->count && VEC_AT(ranges, row_range, next)->begin < end; next++) {
            reach = VEC_AT(ranges, row_range, next)->end > reach
                        ? VEC_AT(ranges, row_range, next)->end
                        : reach;
            end = reach > end ? reach : end;
        }
        end = reach > end ? reach : end;
        sizes[0] = end - offsets[0];
        RETURN_IF(add(ctx, offsets, sizes, err));
        offsets[0] = end;
    }
    return FSDPCK_OK;
}

/* Boxes of at most about `most` elements. */
static fsdpck_status cut_boxes(const averager *v, const average_tensor *t, uint64_t most,
                               average_add_fn add, void *ctx, fsdpck_error *err)
{
    const unsigned ndim = catalogue_tensor(v->from->cat, t->tensor)->ndim;
    const uint64_t *shape = catalogue_shape(v->from->cat, t->tensor);
    uint64_t at[NDIM_MAX] = {0}, sizes[NDIM_MAX], inner = 1;
    unsigned row = ndim - 1; /* dims before it are walked one index at a time */
    while (row > 0 && shape[row] * inner <= most)
        inner *= shape[row--];
    const uint64_t step = inner >= most ? 1 : most / inner;
    for (unsigned d = 0; d < ndim; d++)
        sizes[d] = d < row ? 1 : shape[d];
    for (;;) {
        sizes[row] = shape[row] - at[row] < step ? shape[row] - at[row] : step;
        RETURN_IF(add(ctx, at, sizes, err));
        unsigned d = row;
        if (shape[row] - at[row] > step) {
            at[row] += step;
            continue;
        }
        at[row] = 0;
        while (d > 0 && at[d - 1] == shape[d - 1] - 1)
            at[--d] = 0;
        if (d == 0)
            return FSDPCK_OK;
        at[d - 1]++;
    }
}

fsdpck_status average_cut(const averager *v, const average_tensor *t, average_add_fn add, void *ctx,
                          fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];
    const cat_tensor *ct = catalogue_tensor(v->from->cat, t->tensor);
    const uint64_t *shape = catalogue_shape(v->from->cat, t->tensor);
    const uint64_t most = v->chunk_nbytes / dtype_get((dtype)ct->dtype)->itemsize_bytes;
    vec ranges = VEC_OF(row_range, v->out->owner);
    /* A tensor inside an object has one chunk. */
    if (ct->ndim == 0 || (ct->flags & CAT_TENSOR_IN_OBJECT) != 0 ||
        box_nelems(shape, ct->ndim) <= most)
        return add(ctx, zeros, shape, err);
    fsdpck_status st = list_streams(v, t, &ranges, err);
    if (st == FSDPCK_OK && ranges.count > 0)
        st = cut_rows(v, t, &ranges, most, add, ctx, err);
    else if (st == FSDPCK_OK)
        st = cut_boxes(v, t, most, add, ctx, err);
    vec_release(&ranges);
    return st;
}
