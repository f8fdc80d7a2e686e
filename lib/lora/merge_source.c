/* merge_source.c: the source of merged tensors. A stream reads its rows of the weight block by block, and changes
 * them. */
#include <stdlib.h>
#include <string.h>

#include "lora/merge_internal.h"
#include "state/cast.h"
#include "state/strided.h"

typedef struct merge_stream {
    merger *m;
    merge_rows rows;
    box_cursor *cursor;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX]; /* of the stream's box */
    uint64_t block;                              /* rows that are read together */
    uint64_t next_row;
    dtype from, to;
    uint64_t row_nbytes; /* of the target */
    void *raw;           /* a block in the dtype `from`, if it differs */
    uint8_t *changed;    /* a block whose first bytes were taken */
    uint64_t changed_nbytes, taken_nbytes;
} merge_stream;

static const merge_chunk *chunk_of(const merger *m, uint64_t chunk)
{
    return VEC_AT(&m->chunks, const merge_chunk, catalogue_chunk(m->out, chunk)->aux);
}

/* --- streams --- */

static void release(merge_stream *s)
{
    box_cursor_close(s->cursor);
    merge_rows_close(&s->rows);
    free(s->raw);
    free(s->changed);
}

static uint64_t rows_per_block(uint64_t rows, uint64_t columns)
{
    const uint64_t n = columns >= MERGE_BLOCK_NELEMS ? 1 : MERGE_BLOCK_NELEMS / columns;
    return n < rows ? n : rows;
}

/* A box of the tensor. */
static fsdpck_status begin(merge_stream *s, merger *m, const merge_chunk *k,
                           const uint64_t *offsets, const uint64_t *sizes, fsdpck_error *err)
{
    const merge_target *t = merge_target_at(m, k->target);
    uint32_t input;
    const uint32_t tensor = merge_from(m, t, &input);
    const merge_shape g = merge_shape_of(m, t);
    *s = (merge_stream){.m = m};
    memcpy(s->offsets, offsets, g.ndim * sizeof *offsets);
    memcpy(s->sizes, sizes, g.ndim * sizeof *sizes);
    s->from = (dtype)catalogue_tensor(merge_input_at(m, input)->cat, tensor)->dtype;
    s->to = merge_dtype(m, t);
    RETURN_IF(merge_rows_open(&s->rows, m, t, s->offsets, s->sizes, err));
    RETURN_IF(
        box_cursor_open(merge_reader_at(m, input), tensor, s->offsets, s->sizes, &s->cursor, err));
    s->block = rows_per_block(s->rows.rows, s->rows.columns);
    s->row_nbytes = s->rows.columns * dtype_get(s->to)->itemsize_bytes;
    if (s->from == s->to)
        return FSDPCK_OK;
    const uint64_t nbytes = s->block * s->rows.columns * dtype_get(s->from)->itemsize_bytes;
    s->raw = malloc(nbytes);
    return s->raw == NULL ? error_set_nomem(err, nbytes) : FSDPCK_OK;
}

/* The next n rows, changed. */
static fsdpck_status read_block(merge_stream *s, uint64_t n, void *to, fsdpck_error *err)
{
    const merge_shape *g = &s->rows.shape;
    if (g->ndim > 0) {
        s->offsets[g->row] = s->rows.first_row + s->next_row;
        s->sizes[g->row] = n;
    }
    RETURN_IF(box_cursor_read(s->cursor, s->offsets, s->sizes, s->raw == NULL ? to : s->raw, err));
    if (s->raw != NULL)
        cast_elements(s->from, s->to, to, s->raw, n * s->rows.columns);
    RETURN_IF(merge_rows_apply(&s->rows, s->next_row, n, to, err));
    s->next_row += n;
    return FSDPCK_OK;
}

static uint64_t next_rows(const merge_stream *s)
{
    const uint64_t left = s->rows.rows - s->next_row;
    return left < s->block ? left : s->block;
}

/* Whether elements of the target may be at an address. */
static bool is_aligned(const merge_stream *s, const void *to)
{
    return (uintptr_t)to % dtype_get(s->to)->itemsize_bytes == 0;
}

static fsdpck_status read_rows(merge_stream *s, uint8_t *to, uint64_t nbytes, fsdpck_error *err)
{
    while (nbytes > 0) {
        const uint64_t left = s->changed_nbytes - s->taken_nbytes;
        const uint64_t rows = next_rows(s);
        uint64_t n = nbytes < left ? nbytes : left;
        if (left > 0) {
            memcpy(to, s->changed + s->taken_nbytes, n);
            s->taken_nbytes += n;
        } else if (rows == 0) {
            return FAIL(err, INTERNAL, NONE, "read past the end of a merged chunk");
        } else if (nbytes >= rows * s->row_nbytes && is_aligned(s, to)) {
            n = rows * s->row_nbytes;
            RETURN_IF(read_block(s, rows, to, err));
        } else {
            if (s->changed == NULL)
                s->changed = malloc(s->block * s->row_nbytes);
            if (s->changed == NULL)
                return error_set_nomem(err, s->block * s->row_nbytes);
            RETURN_IF(read_block(s, rows, s->changed, err));
            s->changed_nbytes = rows * s->row_nbytes;
            s->taken_nbytes = n = 0;
        }
        to += n;
        nbytes -= n;
    }
    return FSDPCK_OK;
}

static void stream_close(source_stream *stream)
{
    release((merge_stream *)stream);
    free(stream);
}

static fsdpck_status stream_begin(source_stream *stream, void *ctx, uint64_t chunk,
                                  fsdpck_error *err)
{
    merger *m = ctx;
    const merge_chunk *k = chunk_of(m, chunk);
    const uint64_t *box = VEC_AT(&m->boxes, const uint64_t, k->box);
    const unsigned ndim = merge_shape_of(m, merge_target_at(m, k->target)).ndim;
    return begin((merge_stream *)stream, m, k, box, box + ndim, err);
}

static fsdpck_status stream_read(source_stream *stream, void *dst, uint64_t nbytes,
                                 fsdpck_error *err)
{
    return read_rows((merge_stream *)stream, dst, nbytes, err);
}

static fsdpck_status stream_finish(source_stream *stream, fsdpck_error *err)
{
    return box_cursor_finish(((merge_stream *)stream)->cursor, err);
}

/* --- boxes --- */

static fsdpck_status read_columns(merger *m, const merge_chunk *k, const uint64_t *offsets,
                                  const uint64_t *sizes, void *dst, fsdpck_error *err)
{
    merge_stream s;
    fsdpck_status st = begin(&s, m, k, offsets, sizes, err);
    if (st == FSDPCK_OK)
        st = read_rows(&s, dst, s.rows.rows * s.row_nbytes, err);
    if (st == FSDPCK_OK)
        st = box_cursor_finish(s.cursor, err);
    release(&s);
    return st;
}

/* A box of complete columns that contains one which is not. */
static fsdpck_status read_wider(merger *m, const merge_chunk *k, const uint64_t *offsets,
                                const uint64_t *sizes, unsigned first, void *dst, fsdpck_error *err)
{
    const uint64_t *box = VEC_AT(&m->boxes, const uint64_t, k->box);
    const merge_target *t = merge_target_at(m, k->target);
    const unsigned ndim = merge_shape_of(m, t).ndim;
    const uint64_t itemsize = dtype_get(merge_dtype(m, t))->itemsize_bytes;
    uint64_t from[NDIM_MAX], n[NDIM_MAX], skip = 0;
    strided s = {.ndim = ndim};
    for (unsigned d = 0; d < ndim; d++) {
        from[d] = d < first ? offsets[d] : box[d];
        n[d] = d < first ? sizes[d] : box[ndim + d];
        s.sizes[d] = sizes[d];
    }
    uint8_t *memory = merge_alloc(box_nelems(n, ndim), 1, itemsize, err);
    if (memory == NULL)
        return FSDPCK_LIMIT;
    box_row_major_strides(n, ndim, s.src_strides);
    box_row_major_strides(sizes, ndim, s.dst_strides);
    for (unsigned d = 0; d < ndim; d++) {
        s.src_strides[d] *= itemsize;
        s.dst_strides[d] *= itemsize;
        skip += (offsets[d] - from[d]) * s.src_strides[d];
    }
    const fsdpck_status st = read_columns(m, k, from, n, memory, err);
    strided_collapse(&s);
    if (st == FSDPCK_OK)
        strided_copy(&s, itemsize, dst, memory + skip);
    free(memory);
    return st;
}

static fsdpck_status read_box(void *ctx, uint64_t chunk, const uint64_t *offsets,
                              const uint64_t *sizes, void *dst, fsdpck_error *err)
{
    merger *m = ctx;
    const merge_chunk *k = chunk_of(m, chunk);
    const uint64_t *box = VEC_AT(&m->boxes, const uint64_t, k->box);
    const merge_shape g = merge_shape_of(m, merge_target_at(m, k->target));
    uint64_t from[NDIM_MAX];
    for (unsigned d = 0; d < g.ndim; d++)
        from[d] = box[d] + offsets[d];
    for (unsigned d = g.row + 2; d < g.ndim; d++)
        if (sizes[d] != box[g.ndim + d])
            return read_wider(m, k, from, sizes, g.row + 2, dst, err);
    return read_columns(m, k, from, sizes, dst, err);
}

/* --- the source --- */

static bool same(const void *ctx, uint64_t chunk, uint64_t *of)
{
    const merge_chunk *k = chunk_of(ctx, chunk);
    *of = k->chunk;
    return k->target == MERGE_NONE;
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const merger *m = ctx;
    const merge_chunk *k = chunk_of(m, chunk);
    uint32_t input = 0;
    uint64_t sizes[NDIM_MAX];
    (void)merge_from(m, merge_target_at(m, k->target), &input);
    const source *s = merge_input_at(m, input)->src;
    RETURN_IF(s->locate(s->ctx, k->chunk, where, err)); /* checks its header */
    const cat_tensor *t = catalogue_tensor(m->out, catalogue_chunk(m->out, chunk)->tensor);
    catalogue_chunk_box(m->out, chunk, NULL, sizes);
    *where = (place){.file = catalogue_chunk(m->out, chunk)->file,
                     .stream = true,
                     .rows = true,
                     .boxes = !where->stream,
                     .record_nbytes =
                         box_nelems(sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes};
    return FSDPCK_OK;
}

static uint64_t stream_nbytes(void *ctx, uint64_t chunk)
{
    const merger *m = ctx;
    const merge_chunk *k = chunk_of(m, chunk);
    uint32_t input;
    const merge_target *t = merge_target_at(m, k->target);
    const uint32_t tensor = merge_from(m, t, &input);
    const merge_shape g = merge_shape_of(m, t);
    const uint64_t *offsets = VEC_AT(&m->boxes, const uint64_t, k->box), *sizes = offsets + g.ndim;
    const uint64_t rows = g.ndim > 0 ? sizes[g.row] : 1;
    const uint64_t columns = rows > 0 ? box_nelems(sizes, g.ndim) / rows : 0;
    const uint64_t block = columns > 0 ? rows_per_block(rows, columns) * columns : 0;
    /* A block in both dtypes, and what its changes need: as float64 at most. */
    return merge_rows_nbytes(m, t, sizes) + block * 2 * sizeof(double) +
           box_cursor_nbytes(merge_reader_at(m, input), tensor, offsets, sizes);
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    const merger *m = ctx;
    for (uint32_t i = 0; i < m->list.inputs.count; i++) {
        const source *s = merge_input_at(m, i)->src;
        RETURN_IF(s->check_unchanged(s->ctx, err));
    }
    return FSDPCK_OK;
}

void merger_set_source(merger *m)
{
    static const derived_ops ops = {.same = same,
                                    .locate = locate,
                                    .stream_size = sizeof(merge_stream),
                                    .stream_begin = stream_begin,
                                    .stream_read = stream_read,
                                    .stream_finish = stream_finish,
                                    .stream_close = stream_close,
                                    .stream_nbytes = stream_nbytes,
                                    .read_box = read_box,
                                    .check_unchanged = check_unchanged};
    derived_source_init(&m->source, &ops, m, m->out, merge_input_at(m, 0)->src);
}
