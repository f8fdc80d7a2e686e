#include "state/box_read.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "state/element_ops.h"

/* Short runs are read together with the gaps between them. */
#define GAP_NBYTES  ((uint64_t)4 << 10)
#define SPAN_NBYTES ((uint64_t)256 << 10)

/* --- the chunks of tensors --- */

void box_reader_init(box_reader *r, const catalogue *cat, const source *src, budget *owner)
{
    *r = (box_reader){.cat = cat, .src = src, .owner = owner, .indices = VEC_OF(box_index, owner)};
}

void box_reader_release(box_reader *r)
{
    for (size_t i = 0; i < r->indices.count; i++)
        if (VEC_AT(&r->indices, box_index, i)->cat != NULL)
            box_index_release(VEC_AT(&r->indices, box_index, i), r->owner);
    vec_release(&r->indices);
}

bool box_reader_has(const box_reader *r, uint32_t tensor)
{
    return tensor < r->indices.count && box_reader_index(r, tensor)->cat != NULL;
}

const box_index *box_reader_index(const box_reader *r, uint32_t tensor)
{
    return VEC_AT(&r->indices, const box_index, tensor);
}

fsdpck_status box_reader_add(box_reader *r, uint32_t tensor, fsdpck_error *err)
{
    if (box_reader_has(r, tensor))
        return FSDPCK_OK;
    if (tensor >= r->indices.count &&
        vec_push_n(&r->indices, tensor + 1 - r->indices.count, err) == NULL)
        return FSDPCK_LIMIT;
    return box_index_build(VEC_AT(&r->indices, box_index, tensor), r->cat, tensor, r->owner, err);
}

/* --- one chunk --- */

/* A chunk of a cursor's box. */
typedef struct cursor_chunk {
    uint64_t chunk;
    bool located;
    bool in_order; /* a stream, and parts in row-major order are read front to back */
    place where;   /* with strides */
    uint64_t left; /* elements of the box that were not read */
    source_stream *stream;
    uint64_t stream_at; /* decoded bytes that were read */
    uint8_t *staged;    /* decoded bytes from staged_at on */
    uint64_t staged_at;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX]; /* of the chunk */
} cursor_chunk;

struct box_cursor {
    const box_reader *r;
    uint32_t tensor;
    unsigned ndim;
    dtype type;
    uint64_t itemsize;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX]; /* of the box */
    cursor_chunk *chunks;                        /* by number */
    size_t count;
    uint8_t *span;    /* SPAN_NBYTES; NULL until needed, as most reads are runs */
    uint8_t *scratch; /* of element_ops; likewise */
};

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

static fsdpck_status locate(const box_cursor *c, cursor_chunk *k, fsdpck_error *err)
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

/* The intersection of the chunk and a box; byte strides of both sides. */
typedef struct box_part {
    strided copy; /* dims of the tensor */
    uint64_t at;  /* of its first element: bytes from the chunk's first one */
    uint64_t to;  /* bytes in the memory of the box */
} box_part;

static void find_part(const box_cursor *c, const cursor_chunk *k, const box_query *q,
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
        c->span = malloc(SPAN_NBYTES);
    if (c->scratch == NULL)
        c->scratch = aligned_alloc(64, ELEMENT_OPS_SCRATCH_NBYTES);
    return c->span != NULL && c->scratch != NULL ? FSDPCK_OK : error_set_nomem(err, SPAN_NBYTES);
}

/* --- streams --- */

static fsdpck_status skip_to(box_cursor *c, cursor_chunk *k, uint64_t at, fsdpck_error *err)
{
    if (k->stream_at < at)
        RETURN_IF(need_buffers(c, err));
    while (k->stream_at < at) {
        const uint64_t left = at - k->stream_at;
        const uint64_t n = left < SPAN_NBYTES ? left : SPAN_NBYTES;
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

static fsdpck_status finish_stream(const box_cursor *c, cursor_chunk *k, fsdpck_error *err)
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
        const uint64_t n = span - done < SPAN_NBYTES ? span - done : SPAN_NBYTES;
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
    for (unsigned i = 0; i < s->ndim && span < SPAN_NBYTES; i++) {
        unsigned best = s->ndim;
        for (unsigned d = 0; d < s->ndim; d++)
            if (!seen[d] && (best == s->ndim || s->src_strides[d] < s->src_strides[best]))
                best = d;
        seen[best] = true;
        if (s->src_strides[best] > span + GAP_NBYTES)
            break;
        span += (s->sizes[best] - 1) * s->src_strides[best];
    }
    return span < SPAN_NBYTES ? span : SPAN_NBYTES;
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

static fsdpck_status read_part(box_cursor *c, cursor_chunk *k, const box_part *p, uint8_t *memory,
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

/* --- cursors --- */

static int by_number(const void *left, const void *right)
{
    const cursor_chunk *a = left, *b = right;
    ORDER_BY(a->chunk, b->chunk);
    return 0;
}

static fsdpck_status add_chunk(box_cursor *c, const box_query *q, size_t *capacity,
                               fsdpck_error *err)
{
    if (c->count == *capacity) {
        const size_t more = *capacity == 0 ? 4 : 2 * *capacity;
        cursor_chunk *chunks = realloc(c->chunks, more * sizeof *chunks);
        if (chunks == NULL)
            return error_set_nomem(err, more * sizeof *chunks);
        c->chunks = chunks;
        *capacity = more;
    }
    cursor_chunk *k = &c->chunks[c->count++];
    *k = (cursor_chunk){.chunk = q->chunk, .left = box_nelems(q->sizes, c->ndim)};
    catalogue_chunk_box(c->r->cat, q->chunk, k->offsets, k->sizes);
    return FSDPCK_OK;
}

static fsdpck_status new_cursor(const box_reader *r, uint32_t tensor, const uint64_t *offsets,
                                const uint64_t *sizes, box_cursor **out, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(r->cat, tensor);
    box_cursor *c = *out = calloc(1, sizeof *c);
    if (c == NULL)
        return error_set_nomem(err, sizeof *c);
    c->r = r;
    c->tensor = tensor;
    c->ndim = t->ndim;
    c->type = (dtype)t->dtype;
    c->itemsize = dtype_get(c->type)->itemsize_bytes;
    memcpy(c->offsets, offsets, t->ndim * sizeof *offsets);
    memcpy(c->sizes, sizes, t->ndim * sizeof *sizes);
    return FSDPCK_OK;
}

static fsdpck_status add_chunks(box_cursor *c, fsdpck_error *err)
{
    size_t capacity = 0;
    box_query q;
    if (!box_reader_has(c->r, c->tensor))
        return FAIL(err, INTERNAL, NONE, "tensor without an index");
    box_query_begin(&q, box_reader_index(c->r, c->tensor), c->offsets, c->sizes);
    while (box_query_next(&q))
        RETURN_IF(add_chunk(c, &q, &capacity, err));
    if (c->count > 1)
        qsort(c->chunks, c->count, sizeof *c->chunks, by_number);
    return FSDPCK_OK;
}

fsdpck_status box_cursor_open(const box_reader *r, uint32_t tensor, const uint64_t *offsets,
                              const uint64_t *sizes, box_cursor **out, fsdpck_error *err)
{
    RETURN_IF(new_cursor(r, tensor, offsets, sizes, out, err));
    const fsdpck_status st = add_chunks(*out, err);
    if (st != FSDPCK_OK) {
        box_cursor_close(*out);
        *out = NULL;
    }
    return st;
}

void box_cursor_close(box_cursor *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->count; i++) {
        if (c->chunks[i].stream != NULL)
            c->r->src->stream_close(c->chunks[i].stream);
        free(c->chunks[i].staged);
    }
    free(c->chunks);
    free(c->span);
    free(c->scratch);
    free(c);
}

static fsdpck_status fail_gap(const box_reader *r, uint32_t tensor, uint64_t missing,
                              fsdpck_error *err)
{
    const char *name = catalogue_name(r->cat, catalogue_tensor(r->cat, tensor)->name);
    return FAIL_WITH(err, BADINPUT, CHUNK_GAP, ("'%s' has elements that are in no chunk", name),
                     (tensor, name), (found, "%" PRIu64 " missing elements", missing));
}

static fsdpck_status read_chunk(box_cursor *c, cursor_chunk *k, const box_query *q,
                                const uint64_t *offsets, const uint64_t *sizes, uint8_t *memory,
                                fsdpck_error *err)
{
    box_part p;
    RETURN_IF(locate(c, k, err));
    find_part(c, k, q, offsets, sizes, &p);
    RETURN_IF(read_part(c, k, &p, memory, err));
    const uint64_t n = box_nelems(q->sizes, c->ndim);
    k->left -= n < k->left ? n : k->left;
    if (k->left > 0)
        return FSDPCK_OK;
    free(k->staged);
    k->staged = NULL;
    return finish_stream(c, k, err);
}

fsdpck_status box_cursor_read(box_cursor *c, const uint64_t *offsets, const uint64_t *sizes,
                              void *memory, fsdpck_error *err)
{
    uint64_t left = box_nelems(sizes, c->ndim);
    box_query q;
    box_query_begin(&q, box_reader_index(c->r, c->tensor), offsets, sizes);
    while (box_query_next(&q)) {
        cursor_chunk key = {.chunk = q.chunk};
        cursor_chunk *k = bsearch(&key, c->chunks, c->count, sizeof *c->chunks, by_number);
        const uint64_t n = box_nelems(q.sizes, c->ndim);
        if (k == NULL || n > left)
            return FAIL(err, BADINPUT, CHUNK_OVERLAP, "chunks of a tensor overlap");
        const fsdpck_status st = read_chunk(c, k, &q, offsets, sizes, memory, err);
        if (st != FSDPCK_OK) {
            error_tensor(err,
                         catalogue_name(c->r->cat, catalogue_tensor(c->r->cat, c->tensor)->name));
            return st;
        }
        left -= n;
    }
    return left > 0 ? fail_gap(c->r, c->tensor, left, err) : FSDPCK_OK;
}

fsdpck_status box_cursor_finish(box_cursor *c, fsdpck_error *err)
{
    for (size_t i = 0; i < c->count; i++)
        RETURN_IF(finish_stream(c, &c->chunks[i], err));
    return FSDPCK_OK;
}

fsdpck_status box_read_chunk(const box_reader *r, uint64_t chunk, const uint64_t *offsets,
                             const uint64_t *sizes, void *memory, fsdpck_error *err)
{
    const uint32_t tensor = catalogue_chunk(r->cat, chunk)->tensor;
    const unsigned ndim = catalogue_tensor(r->cat, tensor)->ndim;
    box_cursor *c;
    box_query q = {.chunk = chunk};
    size_t capacity = 0;
    memcpy(q.offsets, offsets, ndim * sizeof *offsets);
    memcpy(q.sizes, sizes, ndim * sizeof *sizes);
    RETURN_IF(new_cursor(r, tensor, offsets, sizes, &c, err));
    fsdpck_status st = add_chunk(c, &q, &capacity, err);
    if (st == FSDPCK_OK)
        st = read_chunk(c, &c->chunks[0], &q, offsets, sizes, memory, err);
    if (st != FSDPCK_OK)
        error_tensor(err, catalogue_name(r->cat, catalogue_tensor(r->cat, tensor)->name));
    box_cursor_close(c);
    return st;
}

fsdpck_status box_read(const box_reader *r, uint32_t tensor, const uint64_t *offsets,
                       const uint64_t *sizes, void *memory, fsdpck_error *err)
{
    box_cursor *c;
    RETURN_IF(box_cursor_open(r, tensor, offsets, sizes, &c, err));
    fsdpck_status st = box_cursor_read(c, offsets, sizes, memory, err);
    if (st == FSDPCK_OK)
        st = box_cursor_finish(c, err);
    box_cursor_close(c);
    return st;
}

/* --- before reading --- */

/* What locating a chunk of a tensor requires. */
static void begin_locating(const box_reader *r, uint32_t tensor, uint64_t chunk, box_cursor *c,
                           cursor_chunk *k)
{
    const cat_tensor *t = catalogue_tensor(r->cat, tensor);
    *c = (box_cursor){.r = r, .tensor = tensor, .ndim = t->ndim, .type = (dtype)t->dtype};
    c->itemsize = dtype_get(c->type)->itemsize_bytes;
    *k = (cursor_chunk){.chunk = chunk};
    catalogue_chunk_box(r->cat, chunk, k->offsets, k->sizes);
}

fsdpck_status box_locate(const box_reader *r, uint32_t tensor, const uint64_t *offsets,
                         const uint64_t *sizes, bool *streams, fsdpck_error *err)
{
    box_query q;
    box_query_begin(&q, box_reader_index(r, tensor), offsets, sizes);
    while (box_query_next(&q)) {
        box_cursor c;
        cursor_chunk k;
        begin_locating(r, tensor, q.chunk, &c, &k);
        RETURN_IF(locate(&c, &k, err));
        *streams = *streams || k.where.stream;
    }
    return FSDPCK_OK;
}

fsdpck_status box_first_is_stream(const box_reader *r, uint32_t tensor, bool *is_stream,
                                  fsdpck_error *err)
{
    const box_index *x = box_reader_index(r, tensor);
    box_cursor c;
    cursor_chunk k;
    *is_stream = false;
    if (x->count == 0 ||
        catalogue_chunk(r->cat, x->first_chunk + x->order[0])->place == LOCATION_ROWS)
        return FSDPCK_OK;
    begin_locating(r, tensor, x->first_chunk + x->order[0], &c, &k);
    RETURN_IF(locate(&c, &k, err));
    *is_stream = k.where.stream;
    return FSDPCK_OK;
}

/* Of a stream whose elements are not in row-major order: they are decoded into memory. */
static uint64_t staged_nbytes(const box_reader *r, uint32_t tensor, const box_query *q)
{
    box_cursor c;
    cursor_chunk k;
    if (catalogue_chunk(r->cat, q->chunk)->place == LOCATION_ROWS)
        return 0;
    begin_locating(r, tensor, q->chunk, &c, &k);
    if (locate(&c, &k, NULL) != FSDPCK_OK || !k.where.stream || k.in_order)
        return 0;
    uint64_t span = c.itemsize;
    for (unsigned d = 0; d < c.ndim; d++)
        span += (q->sizes[d] - 1) * k.where.strides[d] * c.itemsize;
    return span;
}

uint64_t box_cursor_nbytes(const box_reader *r, uint32_t tensor, const uint64_t *offsets,
                           const uint64_t *sizes)
{
    const source *s = r->src;
    uint64_t nbytes = sizeof(box_cursor) + SPAN_NBYTES + ELEMENT_OPS_SCRATCH_NBYTES;
    box_query q;
    box_query_begin(&q, box_reader_index(r, tensor), offsets, sizes);
    while (box_query_next(&q)) {
        nbytes += sizeof(cursor_chunk) + staged_nbytes(r, tensor, &q);
        if (s->stream_nbytes != NULL)
            nbytes += s->stream_nbytes(s->ctx, q.chunk);
    }
    return nbytes;
}
