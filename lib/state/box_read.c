#include "state/box_read.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "state/box_read_internal.h"

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
    RETURN_IF(box_chunk_locate(c, k, err));
    box_chunk_find_part(c, k, q, offsets, sizes, &p);
    RETURN_IF(box_chunk_read(c, k, &p, memory, err));
    const uint64_t n = box_nelems(q->sizes, c->ndim);
    k->left -= n < k->left ? n : k->left;
    if (k->left > 0)
        return FSDPCK_OK;
    free(k->staged);
    k->staged = NULL;
    return box_chunk_finish(c, k, err);
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
        RETURN_IF(box_chunk_finish(c, &c->chunks[i], err));
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

#define CURSOR_NBYTES (sizeof(box_cursor) + BOX_SPAN_NBYTES + ELEMENT_OPS_SCRATCH_NBYTES)

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
    if (!box_reader_has(r, tensor))
        return FAIL(err, INTERNAL, NONE, "tensor without an index");
    box_query_begin(&q, box_reader_index(r, tensor), offsets, sizes);
    while (box_query_next(&q)) {
        box_cursor c;
        cursor_chunk k;
        begin_locating(r, tensor, q.chunk, &c, &k);
        RETURN_IF(box_chunk_locate(&c, &k, err));
        *streams = *streams || k.where.stream;
    }
    return FSDPCK_OK;
}

fsdpck_status box_first_is_stream(const box_reader *r, uint32_t tensor, bool *is_stream,
                                  fsdpck_error *err)
{
    if (!box_reader_has(r, tensor))
        return FAIL(err, INTERNAL, NONE, "tensor without an index");
    const box_index *x = box_reader_index(r, tensor);
    box_cursor c;
    cursor_chunk k;
    *is_stream = false;
    if (x->count == 0 ||
        catalogue_chunk(r->cat, x->first_chunk + x->order[0])->place == LOCATION_ROWS)
        return FSDPCK_OK;
    begin_locating(r, tensor, x->first_chunk + x->order[0], &c, &k);
    RETURN_IF(box_chunk_locate(&c, &k, err));
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
    if (box_chunk_locate(&c, &k, NULL) != FSDPCK_OK || !k.where.stream || k.in_order)
        return 0;
    uint64_t span = c.itemsize;
    for (unsigned d = 0; d < c.ndim; d++)
        span += (q->sizes[d] - 1) * k.where.strides[d] * c.itemsize;
    return span;
}

static uint64_t part_nbytes(const box_reader *r, uint32_t tensor, const box_query *q)
{
    const source *s = r->src;
    const uint64_t nbytes = sizeof(cursor_chunk) + staged_nbytes(r, tensor, q);
    return s->stream_nbytes == NULL ? nbytes : nbytes + s->stream_nbytes(s->ctx, q->chunk);
}

uint64_t box_cursor_nbytes(const box_reader *r, uint32_t tensor, const uint64_t *offsets,
                           const uint64_t *sizes)
{
    uint64_t nbytes = CURSOR_NBYTES;
    box_query q;
    if (!box_reader_has(r, tensor))
        return nbytes;
    box_query_begin(&q, box_reader_index(r, tensor), offsets, sizes);
    while (box_query_next(&q))
        nbytes += part_nbytes(r, tensor, &q);
    return nbytes;
}

uint64_t box_read_chunk_nbytes(const box_reader *r, uint64_t chunk, const uint64_t *offsets,
                               const uint64_t *sizes)
{
    const uint32_t tensor = catalogue_chunk(r->cat, chunk)->tensor;
    const unsigned ndim = catalogue_tensor(r->cat, tensor)->ndim;
    box_query q = {.chunk = chunk};
    memcpy(q.offsets, offsets, ndim * sizeof *offsets);
    memcpy(q.sizes, sizes, ndim * sizeof *sizes);
    return CURSOR_NBYTES + part_nbytes(r, tensor, &q);
}
