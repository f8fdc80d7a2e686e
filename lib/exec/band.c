#include "exec/band.h"

fsdpck_status band_open(band_reader *b, worker *w, uint64_t chunk, uint64_t limit_bytes,
                        fsdpck_error *err)
{
    struct exec *x = w->x;
    const source *src = x->r.source;
    const catalogue *from = plan_from(x->r.plan);
    const uint64_t itemsize = dtype_get(exec_chunk_dtype(x, chunk))->itemsize_bytes;
    b->worker = w;
    b->chunk = chunk;
    b->limit_bytes = limit_bytes;
    b->stream = NULL;
    b->stream_at = 0;
    b->ndim = catalogue_tensor(from, catalogue_chunk(from, chunk)->tensor)->ndim;
    catalogue_chunk_box(from, chunk, NULL, b->sizes);
    exec_chunk_strides(x, chunk, b->strides);
    for (unsigned d = 0; d < b->ndim; d++)
        b->strides[d] *= itemsize;
    box_split_begin(&b->split, b->ndim, b->sizes, b->strides, itemsize, limit_bytes);
    if (!(x->spots[chunk].flags & SPOT_STREAM))
        return FSDPCK_OK;
    fsdpck_status st;
    if (strides_nest(b->ndim, b->sizes, b->strides, itemsize))
        st = src->stream_open(src->ctx, chunk, &b->stream, err);
    else
        st =
            error_set(err, FSDPCK_UNSUPPORTED, "",
                      "compressed chunk has strides that overlap: it cannot be read front to back");
    if (st != FSDPCK_OK)
        exec_chunk_context(x, chunk, err);
    else
        w->sums.streams++;
    return st;
}

/* Up to an offset of the decoded bytes, thrown away. */
static fsdpck_status skip_to(band_reader *b, uint8_t *buffer, uint64_t offset_bytes,
                             fsdpck_error *err)
{
    const source *src = b->worker->x->r.source;
    while (b->stream_at < offset_bytes) {
        const uint64_t left = offset_bytes - b->stream_at;
        const uint64_t n = left < b->limit_bytes ? left : b->limit_bytes;
        RETURN_IF(src->stream_read(b->stream, buffer, n, err));
        b->stream_at += n;
        b->worker->sums.bytes_read += n;
    }
    return FSDPCK_OK;
}

static fsdpck_status read_band(band_reader *b, uint8_t *buffer, fsdpck_error *err)
{
    const source *src = b->worker->x->r.source;
    const spot *s = &b->worker->x->spots[b->chunk];
    const uint64_t at = s->offset_bytes + b->split.offset_bytes;
    if (b->stream == NULL)
        return worker_read(b->worker, s->file, at, buffer, b->split.span_bytes, err);
    RETURN_IF(skip_to(b, buffer, at, err));
    if (b->stream_at != at)
        return error_set(err, FSDPCK_INTERNAL, "", "bands of a stream are not in order");
    RETURN_IF(src->stream_read(b->stream, buffer, b->split.span_bytes, err));
    b->stream_at += b->split.span_bytes;
    b->worker->sums.bytes_read += b->split.span_bytes;
    return FSDPCK_OK;
}

fsdpck_status band_next(band_reader *b, uint8_t *buffer, bool *more, fsdpck_error *err)
{
    *more = box_split_next(&b->split);
    if (!*more)
        return FSDPCK_OK;
    const fsdpck_status st = read_band(b, buffer, err);
    if (st != FSDPCK_OK)
        exec_chunk_context(b->worker->x, b->chunk, err);
    return st;
}

fsdpck_status band_close(band_reader *b, fsdpck_status st, fsdpck_error *err)
{
    const source *src = b->worker->x->r.source;
    if (b->stream == NULL)
        return st;
    if (st == FSDPCK_OK) {
        st = src->stream_finish(b->stream, err);
        if (st != FSDPCK_OK)
            exec_chunk_context(b->worker->x, b->chunk, err);
    }
    src->stream_close(b->stream);
    b->stream = NULL;
    return st;
}
