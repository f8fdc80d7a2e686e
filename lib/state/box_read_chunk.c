/* box_read_chunk.c: reads a part of one chunk: runs, short runs with the gaps between them, streams. */
#include "state/box_read_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"

#define GAP_NBYTES ((uint64_t)4 << 10)

/* A reader's location is checked before it becomes an address. */
static fsdpck_status check_place(const box_cursor *c, const cursor_chunk *k, fsdpck_error *err)
{
    const place *where = &k->where;
    uint64_t span = c->itemsize;
    for (unsigned d = 0; d < c->ndim; d++) {
        uint64_t step;
        if (!checked_mul(where->strides[d], c->itemsize, &step) ||
            !checked_mul_add(k->sizes[d] - 1, step, span, &span))
            return FAIL(err, BADINPUT, TENSOR_BOUNDS, "tensor extends beyond its storage");
    }
    if (where->file >= catalogue_file_count(c->r->cat) ||
        !checked_range(where->offset_bytes, span,
                       where->stream ? INT64_MAX : catalogue_file(c->r->cat, where->file)->nbytes))
        return FAIL(err, INTERNAL, NONE, "reader located a chunk outside of its file");
    return FSDPCK_OK;
}

/* Whether the strides are in the order of the dims, so that boxes in row-major order ascend in the
 * stream. */
static bool descends(const uint64_t *strides, const uint64_t *sizes, unsigned ndim)
{
    uint64_t outer = UINT64_MAX;
    for (unsigned d = 0; d < ndim; d++) {
        if (sizes[d] == 1)
            continue;
        if (strides[d] == 0 || strides[d] > outer / sizes[d])
            return false;
        outer = strides[d];
    }
    return true;
}

fsdpck_status box_chunk_locate(const box_cursor *c, cursor_chunk *k, fsdpck_error *err)
{
    const source *s = c->r->src;
    if (k->located)
        return FSDPCK_OK;
    k->where = (place){0};
    RETURN_IF(s->locate(s->ctx, k->chunk, &k->where, err));
    if (k->where.rows)
        box_row_major_strides(k->sizes, c->ndim, k->where.strides);
    RETURN_IF(check_place(c, k, err));
    k->in_order = descends(k->where.strides, k->sizes, c->ndim);
    k->located = true;
    return FSDPCK_OK;
}

void box_chunk_find_part(const box_cursor *c, const cursor_chunk *k, const box_query *q,
                         const uint64_t *offsets, const uint64_t *sizes, box_part *p)
{
    uint64_t to[NDIM_MAX];
    box_row_major_strides(sizes, c->ndim, to);
    *p = (box_part){.copy.ndim = c->ndim};
    for (unsigned d = 0; d < c->ndim; d++) {
        p->copy.sizes[d] = q->sizes[d];
        p->copy.src_strides[d] = k->where.strides[d] * c->itemsize;
        p->copy.dst_strides[d] = to[d] * c->itemsize;
        p->at += (q->offsets[d] - k->offsets[d]) * p->copy.src_strides[d];
        p->to += (q->offsets[d] - offsets[d]) * p->copy.dst_strides[d];
    }
}

static element_ops ops_of(const box_cursor *c, const place *where)
{
    return (element_ops){.from = c->type,
                         .to = c->type,
                         .swap = where->swap,
                         .conj = where->conj,
                         .neg = where->neg,
                         .add = where->add};
}

static fsdpck_status need_buffers(box_cursor *c, fsdpck_error *err)
{
    if (c->span == NULL)
        c->span = malloc(BOX_SPAN_NBYTES);
    if (c->scratch == NULL)
        c->scratch = aligned_alloc(64, ELEMENT_OPS_SCRATCH_NBYTES);
    return c->span != NULL && c->scratch != NULL ? FSDPCK_OK
                                                 : error_set_nomem(err, BOX_SPAN_NBYTES);
}

/* --- streams --- */

static fsdpck_status skip_to(box_cursor *c, cursor_chunk *k, uint64_t at, fsdpck_error *err)
{
    if (k->stream_at < at)
        RETURN_IF(need_buffers(c, err));
    while (k->stream_at < at) {
        const uint64_t left = at - k->stream_at;
        const uint64_t n = left < BOX_SPAN_NBYTES ? left : BOX_SPAN_NBYTES;
        RETURN_IF(c->r->src->stream_read(k->stream, c->span, n, err));
        k->stream_at += n;
    }
    return FSDPCK_OK;
}

static fsdpck_status open_stream(const box_cursor *c, cursor_chunk *k, fsdpck_error *err)
{
    const source *s = c->r->src;
    if (k->stream != NULL)
        return FSDPCK_OK;
    k->stream_at = 0;
    return s->stream_open(s->ctx, k->chunk, &k->stream, err);
}

fsdpck_status box_chunk_finish(const box_cursor *c, cursor_chunk *k, fsdpck_error *err)
{
    if (k->stream == NULL)
        return FSDPCK_OK;
    const fsdpck_status st = c->r->src->stream_finish(k->stream, err);
    c->r->src->stream_close(k->stream);
    k->stream = NULL;
    return st;
}

/* Decodes the part of the chunk that lies in the cursor's box. */
static fsdpck_status stage(box_cursor *c, cursor_chunk *k, fsdpck_error *err)
{
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], at = k->where.offset_bytes, span = c->itemsize;
    if (!box_intersect(c->offsets, c->sizes, k->offsets, k->sizes, c->ndim, offsets, sizes))
        return FAIL(err, INTERNAL, NONE, "chunk is outside of its box");
    for (unsigned d = 0; d < c->ndim; d++) {
        at += (offsets[d] - k->offsets[d]) * k->where.strides[d] * c->itemsize;
        span += (sizes[d] - 1) * k->where.strides[d] * c->itemsize;
    }
    if (k->stream != NULL && k->stream_at > at) { /* parts out of order */
        c->r->src->stream_close(k->stream);
        k->stream = NULL;
    }
    k->staged = malloc(span);
    if (k->staged == NULL)
        return error_set_nomem(err, span);
    k->staged_at = at;
    RETURN_IF(open_stream(c, k, err));
    RETURN_IF(skip_to(c, k, at, err));
    for (uint64_t done = 0; done < span;) {
        const uint64_t n = span - done < BOX_SPAN_NBYTES ? span - done : BOX_SPAN_NBYTES;
        RETURN_IF(c->r->src->stream_read(k->stream, k->staged + done, n, err));
        k->stream_at += n;
        done += n;
    }
    return FSDPCK_OK;
}

/* --- reading --- */

static fsdpck_status read_span(box_cursor *c, cursor_chunk *k, uint64_t at, uint8_t *to,
                               uint64_t nbytes, fsdpck_error *err)
{
    const source *s = c->r->src;
    at += k->where.offset_bytes;
    if (!k->where.stream)
        return s->read_at(s->ctx, k->where.file, at, to, nbytes, err);
    if (k->staged != NULL) {
        memcpy(to, k->staged + (at - k->staged_at), nbytes);
        return FSDPCK_OK;
    }
    RETURN_IF(skip_to(c, k, at, err));
    if (k->stream_at != at)
        return FAIL(err, INTERNAL, NONE, "parts of a stream are out of order");
    k->stream_at += nbytes;
    return s->stream_read(k->stream, to, nbytes, err);
}

/* Bytes to read at once: runs, and the gaps between short ones. */
static uint64_t span_limit(const strided *s, uint64_t itemsize)
{
    uint64_t span = itemsize;
    bool seen[NDIM_MAX] = {false};
    for (unsigned i = 0; i < s->ndim && span < BOX_SPAN_NBYTES; i++) {
        unsigned best = s->ndim;
        for (unsigned d = 0; d < s->ndim; d++)
            if (!seen[d] && (best == s->ndim || s->src_strides[d] < s->src_strides[best]))
                best = d;
        seen[best] = true;
        if (s->src_strides[best] > span + GAP_NBYTES)
            break;
        span += (s->sizes[best] - 1) * s->src_strides[best];
    }
    return span < BOX_SPAN_NBYTES ? span : BOX_SPAN_NBYTES;
}

/* The boxes of a part that are read at once. */
static fsdpck_status read_spans(box_cursor *c, cursor_chunk *k, const box_part *p, uint8_t *memory,
                                fsdpck_error *err)
{
    const element_ops ops = ops_of(c, &k->where);
    box_split split;
    /* Dims of size 1 would only make the search for runs longer. */
    strided s = p->copy;
    strided_collapse(&s);
    RETURN_IF(need_buffers(c, err));
    box_split_begin(&split, s.ndim, s.sizes, s.src_strides, c->itemsize,
                    span_limit(&s, c->itemsize));
    while (box_split_next(&split)) {
        strided some = {.ndim = s.ndim};
        uint8_t *to = memory + p->to;
        for (unsigned d = 0; d < s.ndim; d++) {
            some.sizes[d] = split.part[d];
            some.src_strides[d] = s.src_strides[d];
            some.dst_strides[d] = s.dst_strides[d];
            to += split.at[d] * s.dst_strides[d];
        }
        RETURN_IF(read_span(c, k, p->at + split.offset_bytes, c->span, split.span_bytes, err));
        strided_collapse(&some);
        if (element_ops_is_copy(&ops))
            strided_copy(&some, c->itemsize, to, c->span);
        else
            (void)element_ops_box(&ops, &some, to, c->span, c->scratch);
    }
    return FSDPCK_OK;
}

fsdpck_status box_chunk_read(box_cursor *c, cursor_chunk *k, const box_part *p, uint8_t *memory,
                             fsdpck_error *err)
{
    strided s = p->copy;
    strided_collapse(&s);
    if (k->where.stream && k->staged == NULL) {
        uint64_t strides[NDIM_MAX];
        for (unsigned d = 0; d < c->ndim; d++)
            strides[d] = p->copy.src_strides[d];
        const bool again = k->stream != NULL && k->stream_at > k->where.offset_bytes + p->at;
        if (!k->in_order || again || !strides_nest(c->ndim, p->copy.sizes, strides, c->itemsize))
            RETURN_IF(stage(c, k, err));
        RETURN_IF(open_stream(c, k, err));
    }
    if (!strided_is_run(&s, c->itemsize, c->itemsize))
        return read_spans(c, k, p, memory, err);
    const uint64_t n = strided_nelems(&s);
    const element_ops ops = ops_of(c, &k->where);
    RETURN_IF(read_span(c, k, p->at, memory + p->to, n * c->itemsize, err));
    if (!element_ops_is_copy(&ops))
        element_ops_resolve(&ops, memory + p->to, n);
    return FSDPCK_OK;
}
