/* merge_source.c: the source of merged tensors. A stream reads its rows of the weight block by block, and changes
 * them. */
#include <stdlib.h>
#include <string.h>

#include "lora/merge_internal.h"
#include "state/cast.h"

typedef struct merge_stream {
    merger *m;
    source_stream *other; /* of the first source; then the rest is unused */
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

static const source *base_source(const merger *m)
{
    return merge_input_at(m, 0)->src;
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const merger *m = ctx;
    const merge_chunk *k = chunk_of(m, chunk);
    const source *s = base_source(m);
    uint32_t input = 0;
    uint64_t sizes[NDIM_MAX];
    if (k->target == MERGE_NONE)
        return s->locate(s->ctx, k->chunk, where, err);
    (void)merge_from(m, merge_target_at(m, k->target), &input);
    s = merge_input_at(m, input)->src;
    RETURN_IF(s->locate(s->ctx, k->chunk, where, err)); /* checks its header */
    const cat_tensor *t = catalogue_tensor(m->out, catalogue_chunk(m->out, chunk)->tensor);
    catalogue_chunk_box(m->out, chunk, NULL, sizes);
    *where = (place){.file = catalogue_chunk(m->out, chunk)->file,
                     .stream = true,
                     .rows = true,
                     .record_nbytes =
                         box_nelems(sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes};
    return FSDPCK_OK;
}

static fsdpck_status check_empty(void *ctx, uint64_t chunk, fsdpck_error *err)
{
    const merger *m = ctx;
    const source *s = base_source(m);
    return s->check_empty(s->ctx, chunk_of(m, chunk)->chunk, err);
}

static fsdpck_status read_at(void *ctx, uint32_t file, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    const source *s = base_source(ctx);
    return s->read_at(s->ctx, file, offset_bytes, dst, nbytes, err);
}

/* --- streams --- */

static void stream_close(source_stream *stream)
{
    merge_stream *s = (merge_stream *)stream;
    if (s == NULL)
        return;
    if (s->other != NULL)
        base_source(s->m)->stream_close(s->other);
    box_cursor_close(s->cursor);
    merge_rows_close(&s->rows);
    free(s->raw);
    free(s->changed);
    free(s);
}

static uint64_t rows_per_block(uint64_t rows, uint64_t columns)
{
    const uint64_t n = columns >= MERGE_BLOCK_NELEMS ? 1 : MERGE_BLOCK_NELEMS / columns;
    return n < rows ? n : rows;
}

static fsdpck_status open_changed(merge_stream *s, const merge_chunk *k, fsdpck_error *err)
{
    const merge_target *t = merge_target_at(s->m, k->target);
    uint32_t input;
    const uint32_t tensor = merge_from(s->m, t, &input);
    const merge_shape g = merge_shape_of(s->m, t);
    const uint64_t *box = VEC_AT(&s->m->boxes, const uint64_t, k->box);
    memcpy(s->offsets, box, g.ndim * sizeof *box);
    memcpy(s->sizes, box + g.ndim, g.ndim * sizeof *box);
    s->from = (dtype)catalogue_tensor(merge_input_at(s->m, input)->cat, tensor)->dtype;
    s->to = merge_dtype(s->m, t);
    RETURN_IF(merge_rows_open(&s->rows, s->m, t, s->offsets, s->sizes, err));
    RETURN_IF(box_cursor_open(merge_reader_at(s->m, input), tensor, s->offsets, s->sizes,
                              &s->cursor, err));
    s->block = rows_per_block(s->rows.rows, s->rows.columns);
    s->row_nbytes = s->rows.columns * dtype_get(s->to)->itemsize_bytes;
    if (s->from == s->to)
        return FSDPCK_OK;
    const uint64_t nbytes = s->block * s->rows.columns * dtype_get(s->from)->itemsize_bytes;
    s->raw = malloc(nbytes);
    return s->raw == NULL ? error_set_nomem(err, nbytes) : FSDPCK_OK;
}

static fsdpck_status stream_open(void *ctx, uint64_t chunk, source_stream **stream,
                                 fsdpck_error *err)
{
    merger *m = ctx;
    const merge_chunk *k = chunk_of(m, chunk);
    *stream = NULL;
    merge_stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set_nomem(err, sizeof *s);
    s->m = m;
    const fsdpck_status st =
        k->target == MERGE_NONE
            ? base_source(m)->stream_open(base_source(m)->ctx, k->chunk, &s->other, err)
            : open_changed(s, k, err);
    if (st != FSDPCK_OK)
        stream_close((source_stream *)s);
    else
        *stream = (source_stream *)s;
    return st;
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

static fsdpck_status stream_read(source_stream *stream, void *dst, uint64_t nbytes,
                                 fsdpck_error *err)
{
    merge_stream *s = (merge_stream *)stream;
    uint8_t *to = dst;
    if (s->other != NULL)
        return base_source(s->m)->stream_read(s->other, dst, nbytes, err);
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

static fsdpck_status stream_finish(source_stream *stream, fsdpck_error *err)
{
    merge_stream *s = (merge_stream *)stream;
    return s->other != NULL ? base_source(s->m)->stream_finish(s->other, err)
                            : box_cursor_finish(s->cursor, err);
}

static uint64_t stream_nbytes(void *ctx, uint64_t chunk)
{
    const merger *m = ctx;
    const merge_chunk *k = chunk_of(m, chunk);
    const source *b = base_source(m);
    uint32_t input;
    if (k->target == MERGE_NONE)
        return b->stream_nbytes == NULL ? 0 : b->stream_nbytes(b->ctx, k->chunk);
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

static stream_checksum stream_checksum_of(void *ctx, uint64_t chunk)
{
    const merger *m = ctx;
    const merge_chunk *k = chunk_of(m, chunk);
    const source *s = base_source(m);
    return k->target != MERGE_NONE || s->stream_checksum_of == NULL
               ? STREAM_CHECKSUM_UNKNOWN
               : s->stream_checksum_of(s->ctx, k->chunk);
}

static const char *replica_of(void *ctx, uint64_t chunk)
{
    const merger *m = ctx;
    const merge_chunk *k = chunk_of(m, chunk);
    const source *s = base_source(m);
    return k->target != MERGE_NONE ? NULL : s->replica_of(s->ctx, k->chunk);
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
    const source *s = base_source(m);
    m->source = (source){.ctx = m,
                         .cat = m->out,
                         .root = s->root,
                         .root_is_file = s->root_is_file,
                         .locate = locate,
                         .check_empty = s->check_empty == NULL ? NULL : check_empty,
                         .read_at = read_at,
                         .stream_open = stream_open,
                         .stream_read = stream_read,
                         .stream_finish = stream_finish,
                         .stream_close = stream_close,
                         .stream_nbytes = stream_nbytes,
                         .stream_checksum_of = stream_checksum_of,
                         .replica_of = s->replica_of == NULL ? NULL : replica_of,
                         .check_unchanged = check_unchanged};
}
