#include "state/derived_source.h"

#include <stdlib.h>

/* --- streams --- */

typedef struct derived_stream {
    const derived_source *d;
    bool of_base;
    source_stream *stream;
} derived_stream;

static fsdpck_status open_computed(derived_stream *s, uint64_t chunk, fsdpck_error *err)
{
    const derived_source *d = s->d;
    s->stream = calloc(1, d->ops->stream_size);
    if (s->stream == NULL)
        return error_set_nomem(err, d->ops->stream_size);
    const fsdpck_status st = d->ops->stream_begin(s->stream, d->ctx, chunk, err);
    if (st != FSDPCK_OK)
        d->ops->stream_close(s->stream);
    return st;
}

static fsdpck_status open_either(derived_stream *s, uint64_t chunk, fsdpck_error *err)
{
    const derived_source *d = s->d;
    uint64_t of;
    s->of_base = d->ops->same(d->ctx, chunk, &of);
    return s->of_base ? d->base->stream_open(d->base->ctx, of, &s->stream, err)
                      : open_computed(s, chunk, err);
}

static fsdpck_status stream_open(void *ctx, uint64_t chunk, source_stream **stream,
                                 fsdpck_error *err)
{
    derived_stream *s = calloc(1, sizeof *s);
    *stream = NULL;
    if (s == NULL)
        return error_set_nomem(err, sizeof *s);
    s->d = ctx;
    const fsdpck_status st = open_either(s, chunk, err);
    if (st != FSDPCK_OK)
        free(s);
    else
        *stream = (source_stream *)s;
    return st;
}

static fsdpck_status stream_read(source_stream *stream, void *dst, uint64_t nbytes,
                                 fsdpck_error *err)
{
    const derived_stream *s = (const derived_stream *)stream;
    return s->of_base ? s->d->base->stream_read(s->stream, dst, nbytes, err)
                      : s->d->ops->stream_read(s->stream, dst, nbytes, err);
}

static fsdpck_status stream_finish(source_stream *stream, fsdpck_error *err)
{
    const derived_stream *s = (const derived_stream *)stream;
    if (s->of_base)
        return s->d->base->stream_finish(s->stream, err);
    return s->d->ops->stream_finish == NULL ? FSDPCK_OK : s->d->ops->stream_finish(s->stream, err);
}

static void stream_close(source_stream *stream)
{
    derived_stream *s = (derived_stream *)stream;
    if (s == NULL)
        return;
    if (s->of_base)
        s->d->base->stream_close(s->stream);
    else
        s->d->ops->stream_close(s->stream);
    free(s);
}

static uint64_t stream_nbytes(void *ctx, uint64_t chunk)
{
    const derived_source *d = ctx;
    uint64_t of;
    if (!d->ops->same(d->ctx, chunk, &of))
        return d->ops->stream_nbytes(d->ctx, chunk);
    return d->base->stream_nbytes == NULL ? 0 : d->base->stream_nbytes(d->base->ctx, of);
}

static stream_checksum stream_checksum_of(void *ctx, uint64_t chunk)
{
    const derived_source *d = ctx;
    uint64_t of;
    return !d->ops->same(d->ctx, chunk, &of) || d->base->stream_checksum_of == NULL
               ? STREAM_CHECKSUM_UNKNOWN
               : d->base->stream_checksum_of(d->base->ctx, of);
}

/* --- chunks --- */

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const derived_source *d = ctx;
    uint64_t of;
    return d->ops->same(d->ctx, chunk, &of) ? d->base->locate(d->base->ctx, of, where, err)
                                            : d->ops->locate(d->ctx, chunk, where, err);
}

static fsdpck_status check_empty(void *ctx, uint64_t chunk, fsdpck_error *err)
{
    const derived_source *d = ctx;
    uint64_t of;
    if (!d->ops->same(d->ctx, chunk, &of))
        return FAIL(err, INTERNAL, NONE, "a computed chunk is empty");
    return d->base->check_empty(d->base->ctx, of, err);
}

static fsdpck_status read_at(void *ctx, uint32_t file, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    const source *s = ((const derived_source *)ctx)->base;
    return s->read_at(s->ctx, file, offset_bytes, dst, nbytes, err);
}

static fsdpck_status read_box(void *ctx, uint64_t chunk, const uint64_t *offsets,
                              const uint64_t *sizes, void *dst, fsdpck_error *err)
{
    const derived_source *d = ctx;
    uint64_t of;
    const bool same = d->ops->same(d->ctx, chunk, &of);
    if (same ? d->base->read_box == NULL : d->ops->read_box == NULL)
        return FAIL(err, INTERNAL, NONE, "chunk cannot be read by boxes");
    return same ? d->base->read_box(d->base->ctx, of, offsets, sizes, dst, err)
                : d->ops->read_box(d->ctx, chunk, offsets, sizes, dst, err);
}

static const char *replica_of(void *ctx, uint64_t chunk)
{
    const derived_source *d = ctx;
    uint64_t of;
    if (d->ops->same(d->ctx, chunk, &of))
        return d->base->replica_of == NULL ? NULL : d->base->replica_of(d->base->ctx, of);
    return d->ops->replica_of == NULL ? NULL : d->ops->replica_of(d->ctx, chunk);
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    const derived_source *d = ctx;
    if (d->ops->check_unchanged != NULL)
        return d->ops->check_unchanged(d->ctx, err);
    return d->base->check_unchanged == NULL ? FSDPCK_OK
                                            : d->base->check_unchanged(d->base->ctx, err);
}

void derived_source_init(derived_source *d, const derived_ops *ops, void *ctx, const catalogue *cat,
                         const source *base)
{
    *d = (derived_source){
        .ops = ops,
        .ctx = ctx,
        .base = base,
        .source = {.ctx = d,
                   .cat = cat,
                   .root = base->root,
                   .root_is_file = base->root_is_file,
                   .locate = locate,
                   .check_empty = base->check_empty == NULL ? NULL : check_empty,
                   .read_at = read_at,
                   .stream_open = stream_open,
                   .stream_read = stream_read,
                   .stream_finish = stream_finish,
                   .stream_close = stream_close,
                   .stream_nbytes = stream_nbytes,
                   .stream_checksum_of = stream_checksum_of,
                   .read_box = ops->read_box == NULL && base->read_box == NULL ? NULL : read_box,
                   .replica_of =
                       ops->replica_of == NULL && base->replica_of == NULL ? NULL : replica_of,
                   .check_unchanged = check_unchanged}};
}
