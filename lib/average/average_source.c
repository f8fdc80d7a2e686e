/* average_source.c: the source of an average. A stream reads a band of every input at a time, and computes
 * block by block. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "average/average_internal.h"

/* --- streams --- */

typedef struct average_stream {
    const averager *v;
    average_reader reader;
    average_sum sum; /* of tensors that are computed */
    const uint8_t *const *bands;
    uint64_t at, left; /* numbers of the band: taken, and not */
    const uint8_t *ready;
    uint64_t ready_nbytes;
} average_stream;

static fsdpck_status fail_unequal(const averager *v, const average_reader *r, size_t input,
                                  uint64_t element, fsdpck_error *err)
{
    if (average_is_quantized(v, r->t->tensor))
        return FAIL_WITH(err, UNSUPPORTED, AVERAGE_KIND,
                         ("'%s' is a quantized weight, and differs between '%s' and '%s'",
                          average_name(v, r->t), v->from->name, v->inputs[input].name),
                         (path, v->inputs[input].name), (tensor, average_name(v, r->t)),
                         (found, "element %" PRIu64 " is the first that differs", element),
                         (next, "give --dequantize if it has scales, or omit it with --exclude"));
    return FAIL_WITH(err, BADINPUT, AVERAGE_DIFFER,
                     ("'%s' is not averaged, and differs between '%s' and '%s'",
                      average_name(v, r->t), v->from->name, v->inputs[input].name),
                     (path, v->inputs[input].name), (tensor, average_name(v, r->t)),
                     (found, "element %" PRIu64 " is the first that differs", element),
                     (next, "name the input to take it from: --objects-from N"));
}

/* Number of an element of the chunk in its tensor. */
static uint64_t number_of(const average_reader *r, uint64_t element)
{
    const uint64_t *shape = catalogue_shape(r->v->out, r->t->tensor);
    uint64_t stride = 1, number = 0;
    for (unsigned d = r->ndim; d-- > 0;) {
        number += (r->offsets[d] + element % r->sizes[d]) * stride;
        element /= r->sizes[d];
        stride *= shape[d];
    }
    return number;
}

static fsdpck_status compare_band(average_stream *s, uint64_t n, fsdpck_error *err)
{
    const average_reader *r = &s->reader;
    const uint8_t *own = s->bands[s->v->shape];
    for (size_t i = 0; i < s->v->count; i++) {
        if (memcmp(s->bands[i], own, n * r->itemsize) == 0)
            continue;
        uint64_t k = 0;
        while (memcmp(s->bands[i] + k * r->itemsize, own + k * r->itemsize, r->itemsize) == 0)
            k++;
        return fail_unequal(s->v, r, i, number_of(r, r->next - n + k), err);
    }
    s->ready = own;
    s->ready_nbytes = n * r->itemsize;
    return FSDPCK_OK;
}

/* Up to AVERAGE_BLOCK numbers to `to`. */
static fsdpck_status compute_block(average_stream *s, uint8_t *to, uint64_t *nbytes,
                                   fsdpck_error *err)
{
    const uint64_t size = dtype_get(s->sum.type)->itemsize_bytes;
    const uint64_t n = s->left < AVERAGE_BLOCK ? s->left : AVERAGE_BLOCK;
    struct average_buffers *b = s->reader.buffers;
    size_t culprit;
    for (size_t i = 0; i < s->v->count; i++)
        b->from[i] = s->bands[i] + s->at * size;
    if (!average_sum_block(&s->sum, b->from, to, n, &culprit))
        return average_fail_special(s->v, s->reader.t, culprit, err);
    s->at += n;
    s->left -= n;
    *nbytes = n * size;
    return FSDPCK_OK;
}

static fsdpck_status next_band(average_stream *s, fsdpck_error *err)
{
    uint64_t n;
    RETURN_IF(average_reader_next(&s->reader, &s->bands, &n, err));
    if (n == 0)
        return FAIL(err, INTERNAL, NONE, "read past the end of an averaged chunk");
    averager_add_further_nbytes((averager *)s->v, n * s->reader.itemsize * (s->v->count - 1));
    if (!s->reader.t->computed)
        return compare_band(s, n, err);
    s->at = 0;
    s->left = n * (s->reader.itemsize / dtype_get(s->sum.type)->itemsize_bytes);
    return FSDPCK_OK;
}

static const average_chunk *chunk_of(const averager *v, uint64_t chunk)
{
    return VEC_AT(&v->chunks, const average_chunk, catalogue_chunk(v->out, chunk)->aux);
}

static void release(average_stream *s, bool keep)
{
    average_sum_release(&s->sum);
    average_reader_close(&s->reader, keep);
}

/* A box of the chunk. */
static fsdpck_status begin(average_stream *s, const averager *v, uint64_t chunk,
                           const uint64_t *offsets, const uint64_t *sizes, fsdpck_error *err)
{
    *s = (average_stream){.v = v};
    RETURN_IF(average_reader_open(&s->reader, v, chunk, offsets, sizes, err));
    if (!s->reader.t->computed)
        return FSDPCK_OK;
    RETURN_IF(average_sum_init(&s->sum, &v->rule, v->count,
                               (dtype)catalogue_tensor(v->out, s->reader.t->tensor)->dtype, err));
    return v->rule.slerp ? average_slerp_factors(v, s->reader.t, s->sum.slerp, err) : FSDPCK_OK;
}

static fsdpck_status read_numbers(average_stream *s, uint8_t *to, uint64_t nbytes,
                                  fsdpck_error *err)
{
    while (nbytes > 0) {
        if (s->ready_nbytes == 0 && s->left == 0)
            RETURN_IF(next_band(s, err));
        if (s->ready_nbytes == 0 && s->left > 0 && nbytes >= AVERAGE_BLOCK * sizeof(double)) {
            uint64_t made;
            RETURN_IF(compute_block(s, to, &made, err));
            to += made;
            nbytes -= made;
            continue;
        }
        if (s->ready_nbytes == 0 && s->left > 0) {
            s->ready = s->reader.buffers->block;
            RETURN_IF(compute_block(s, s->reader.buffers->block, &s->ready_nbytes, err));
        }
        const uint64_t n = nbytes < s->ready_nbytes ? nbytes : s->ready_nbytes;
        memcpy(to, s->ready, n);
        s->ready += n;
        s->ready_nbytes -= n;
        to += n;
        nbytes -= n;
    }
    return FSDPCK_OK;
}

static fsdpck_status finish(average_stream *s, fsdpck_error *err)
{
    averager *v = (averager *)s->v;
    RETURN_IF(average_reader_finish(&s->reader, err));
    for (size_t i = 0; s->reader.t->computed && i < v->rule.count; i++)
        averager_add_distance(v, s->reader.t->tensor, i, s->sum.farthest[i]);
    return FSDPCK_OK;
}

static void stream_close(source_stream *stream)
{
    average_stream *s = (average_stream *)stream;
    release(s, false);
    free(s);
}

static fsdpck_status stream_begin(source_stream *stream, void *ctx, uint64_t chunk,
                                  fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];
    const averager *v = ctx;
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(v->out, chunk, NULL, sizes);
    return begin((average_stream *)stream, v, chunk, zeros, sizes, err);
}

static fsdpck_status stream_read(source_stream *stream, void *dst, uint64_t nbytes,
                                 fsdpck_error *err)
{
    return read_numbers((average_stream *)stream, dst, nbytes, err);
}

static fsdpck_status stream_finish(source_stream *stream, fsdpck_error *err)
{
    return finish((average_stream *)stream, err);
}

/* --- boxes --- */

static fsdpck_status read_box(void *ctx, uint64_t chunk, const uint64_t *offsets,
                              const uint64_t *sizes, void *dst, fsdpck_error *err)
{
    average_stream s;
    fsdpck_status st = begin(&s, ctx, chunk, offsets, sizes, err);
    if (st == FSDPCK_OK)
        st = read_numbers(&s, dst, s.reader.nelems * s.reader.itemsize, err);
    if (st == FSDPCK_OK)
        st = finish(&s, err);
    release(&s, st == FSDPCK_OK);
    return st;
}

/* --- the source --- */

static bool same(const void *ctx, uint64_t chunk, uint64_t *of)
{
    const average_chunk *k = chunk_of(ctx, chunk);
    *of = k->chunk;
    return k->slot == AVERAGE_NONE;
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const averager *v = ctx;
    const average_tensor *t = VEC_AT(&v->slots, const average_tensor, chunk_of(v, chunk)->slot);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    bool streams = false;
    catalogue_chunk_box(v->out, chunk, offsets, sizes);
    for (size_t i = 0; i < v->count; i++) {
        const fsdpck_status st =
            box_locate(&v->readers[i], average_tensor_of(v, t, i), offsets, sizes, &streams, err);
        if (st != FSDPCK_OK) {
            average_name_input(v, i, err);
            return st;
        }
    }
    *where = (place){.file = catalogue_chunk(v->out, chunk)->file,
                     .stream = true,
                     .rows = true,
                     .boxes = !streams,
                     .record_nbytes = catalogue_chunk(v->out, chunk)->nbytes};
    return FSDPCK_OK;
}

static uint64_t stream_nbytes(void *ctx, uint64_t chunk)
{
    const averager *v = ctx;
    const average_tensor *t = VEC_AT(&v->slots, const average_tensor, chunk_of(v, chunk)->slot);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    uint64_t nbytes = (v->count + 4) * AVERAGE_BLOCK * sizeof(double);
    catalogue_chunk_box(v->out, chunk, offsets, sizes);
    for (size_t i = 0; i < v->count; i++)
        nbytes += v->band_nbytes +
                  box_cursor_nbytes(&v->readers[i], average_tensor_of(v, t, i), offsets, sizes);
    return v->rule.slerp ? 2 * nbytes : nbytes;
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    const averager *v = ctx;
    for (size_t i = 0; i < v->count; i++) {
        const source *s = v->inputs[i].src;
        const fsdpck_status st =
            s->check_unchanged == NULL ? FSDPCK_OK : s->check_unchanged(s->ctx, err);
        if (st != FSDPCK_OK) {
            average_name_input(v, i, err);
            return st;
        }
    }
    return FSDPCK_OK;
}

void average_set_source(averager *v)
{
    static const derived_ops ops = {.same = same,
                                    .locate = locate,
                                    .stream_size = sizeof(average_stream),
                                    .stream_begin = stream_begin,
                                    .stream_read = stream_read,
                                    .stream_finish = stream_finish,
                                    .stream_close = stream_close,
                                    .stream_nbytes = stream_nbytes,
                                    .read_box = read_box,
                                    .check_unchanged = check_unchanged};
    derived_source_init(&v->source, &ops, v, v->out, v->from->src);
}
