#include "exec/row_block.h"

#include <stdlib.h>
#include <string.h>

static void begin(row_block_reader *b, worker *w, uint64_t chunk, uint64_t limit_bytes)
{
    struct exec *x = w->x;
    const catalogue *from = plan_source(x->r.plan);
    const uint64_t itemsize = dtype_get(exec_chunk_dtype(x, chunk))->itemsize_bytes;
    b->worker = w;
    b->chunk = chunk;
    b->limit_bytes = limit_bytes;
    b->stream = NULL;
    b->stream_at = 0;
    b->staged = NULL;
    b->ndim = catalogue_tensor(from, catalogue_chunk(from, chunk)->tensor)->ndim;
    catalogue_chunk_box(from, chunk, NULL, b->sizes);
    exec_chunk_strides(x, chunk, b->strides);
    for (unsigned d = 0; d < b->ndim; d++)
        b->strides[d] *= itemsize;
    box_split_begin(&b->split, b->ndim, b->sizes, b->strides, itemsize, limit_bytes);
}

/* Decodes some bytes, in steps between which a cancellation is possible. */
static fsdpck_status decode(row_block_reader *b, uint8_t *to, uint64_t nbytes, fsdpck_error *err)
{
    const source *src = b->worker->x->r.source;
    while (nbytes > 0) {
        const uint64_t n = nbytes < b->limit_bytes ? nbytes : b->limit_bytes;
        RETURN_IF(cancel_check(b->worker->x->r.cancel, err));
        RETURN_IF(src->stream_read(b->stream, to, n, err));
        b->stream_at += n;
        b->worker->stats.bytes_read += n;
        to += n;
        nbytes -= n;
    }
    return FSDPCK_OK;
}

/* Skips decoded bytes up to an offset. */
static fsdpck_status skip_to(row_block_reader *b, uint8_t *buffer, uint64_t offset_bytes,
                             fsdpck_error *err)
{
    while (b->stream_at < offset_bytes) {
        const uint64_t left = offset_bytes - b->stream_at;
        RETURN_IF(decode(b, buffer, left < b->limit_bytes ? left : b->limit_bytes, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status stage(row_block_reader *b, fsdpck_error *err)
{
    const struct exec *x = b->worker->x;
    const uint64_t itemsize = dtype_get(exec_chunk_dtype(x, b->chunk))->itemsize_bytes;
    const uint64_t nbytes = strided_span(b->ndim, b->sizes, b->strides, itemsize);
    const uint64_t room = nbytes > b->limit_bytes ? nbytes : b->limit_bytes;
    b->staged = malloc(room);
    if (b->staged == NULL)
        return error_set_nomem(err, room);
    RETURN_IF(skip_to(b, b->staged, x->chunk_extents[b->chunk].offset_bytes, err));
    return decode(b, b->staged, nbytes, err);
}

static fsdpck_status open_stream(row_block_reader *b, bool staged, fsdpck_error *err)
{
    const source *src = b->worker->x->r.source;
    fsdpck_status st = src->stream_open(src->ctx, b->chunk, &b->stream, err);
    if (st == FSDPCK_OK && staged) {
        st = stage(b, err);
        if (st != FSDPCK_OK)
            st = row_block_close(b, st, err);
    }
    if (st != FSDPCK_OK)
        exec_add_chunk_context(b->worker->x, b->chunk, err);
    else
        b->worker->stats.streams++;
    return st;
}

static bool nests(const struct exec *x, const row_block_reader *b)
{
    return strides_nest(b->ndim, b->sizes, b->strides,
                        dtype_get(exec_chunk_dtype(x, b->chunk))->itemsize_bytes);
}

fsdpck_status row_block_open(row_block_reader *b, worker *w, uint64_t chunk, uint64_t limit_bytes,
                             fsdpck_error *err)
{
    begin(b, w, chunk, limit_bytes);
    return w->x->chunk_extents[chunk].flags & EXTENT_STREAM ? open_stream(b, !nests(w->x, b), err)
                                                            : FSDPCK_OK;
}

fsdpck_status row_block_open_staged(row_block_reader *b, worker *w, uint64_t chunk,
                                    fsdpck_error *err)
{
    begin(b, w, chunk, w->x->staging_nbytes);
    return open_stream(b, true, err);
}

const uint8_t *row_block_element(const row_block_reader *b, const uint64_t *at)
{
    const uint8_t *element = b->staged;
    for (unsigned d = 0; d < b->ndim; d++)
        element += at[d] * b->strides[d];
    return element;
}

static fsdpck_status row_block_read(row_block_reader *b, uint8_t *buffer, fsdpck_error *err)
{
    const chunk_extent *s = &b->worker->x->chunk_extents[b->chunk];
    const uint64_t at = s->offset_bytes + b->split.offset_bytes;
    if (b->staged != NULL) {
        memcpy(buffer, b->staged + b->split.offset_bytes, b->split.span_bytes);
        return FSDPCK_OK;
    }
    if (b->stream == NULL)
        return worker_read(b->worker, s->file, at, buffer, b->split.span_bytes, err);
    RETURN_IF(skip_to(b, buffer, at, err));
    if (b->stream_at != at)
        return FAIL(err, INTERNAL, NONE, "row blocks of a stream are out of order");
    return decode(b, buffer, b->split.span_bytes, err);
}

fsdpck_status row_block_next(row_block_reader *b, uint8_t *buffer, bool *more, fsdpck_error *err)
{
    *more = box_split_next(&b->split);
    if (!*more)
        return FSDPCK_OK;
    const fsdpck_status st = row_block_read(b, buffer, err);
    if (st != FSDPCK_OK)
        exec_add_chunk_context(b->worker->x, b->chunk, err);
    return st;
}

fsdpck_status row_block_close(row_block_reader *b, fsdpck_status st, fsdpck_error *err)
{
    const source *src = b->worker->x->r.source;
    if (b->stream == NULL)
        return st;
    if (st == FSDPCK_OK) {
        st = src->stream_finish(b->stream, err);
        if (st != FSDPCK_OK)
            exec_add_chunk_context(b->worker->x, b->chunk, err);
    }
    src->stream_close(b->stream);
    free(b->staged);
    b->stream = NULL;
    b->staged = NULL;
    return st;
}

/* Bytes from the first element of a chunk to the end of its last one; 0 where it can be read front to
 * back. */
static uint64_t span_of(const struct exec *x, uint64_t chunk, bool always)
{
    const catalogue *from = plan_source(x->r.plan);
    const unsigned ndim = catalogue_tensor(from, catalogue_chunk(from, chunk)->tensor)->ndim;
    const uint64_t itemsize = dtype_get(exec_chunk_dtype(x, chunk))->itemsize_bytes;
    uint64_t sizes[NDIM_MAX], strides[NDIM_MAX];
    catalogue_chunk_box(from, chunk, NULL, sizes);
    exec_chunk_strides(x, chunk, strides);
    for (unsigned d = 0; d < ndim; d++)
        strides[d] *= itemsize;
    return always || !strides_nest(ndim, sizes, strides, itemsize)
               ? strided_span(ndim, sizes, strides, itemsize)
               : 0;
}

bool row_block_same_strides(const struct exec *x, uint64_t chunk, uint64_t other)
{
    const catalogue *from = plan_source(x->r.plan);
    const unsigned ndim = catalogue_tensor(from, catalogue_chunk(from, chunk)->tensor)->ndim;
    uint64_t a[NDIM_MAX], b[NDIM_MAX];
    exec_chunk_strides(x, chunk, a);
    exec_chunk_strides(x, other, b);
    return memcmp(a, b, ndim * sizeof *a) == 0;
}

uint64_t row_block_staged_nbytes(const struct exec *x)
{
    uint64_t most = 0;
    for (uint64_t k = 0; k < x->chunk_extent_count; k++) {
        const uint64_t nbytes =
            x->chunk_extents[k].flags & EXTENT_STREAM ? span_of(x, k, false) : 0;
        most = nbytes > most ? nbytes : most;
    }
    for (size_t i = 0; i < x->compare.count; i++) {
        const replica_pair *p = VEC_AT(&x->compare, replica_pair, i);
        const bool both = (x->chunk_extents[p->first].flags & x->chunk_extents[p->again].flags &
                           EXTENT_STREAM) != 0;
        if (!both || row_block_same_strides(x, p->first, p->again))
            continue;
        const uint64_t nbytes = span_of(x, p->again, true);
        most = nbytes > most ? nbytes : most;
    }
    return most;
}
