/* average_read.c: the source of an average. A stream reads a band of every input at a time, and computes
 * block by block. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "average/average_internal.h"

/* --- buffers --- */

struct average_buffers {
    struct average_buffers *next;
    const uint8_t **from; /* by input: the numbers of a block */
    uint8_t *block;       /* the result */
    uint8_t *bands[];     /* by input: AVERAGE_BAND_NBYTES */
};

static void free_buffers(struct average_buffers *b, size_t count)
{
    if (b == NULL)
        return;
    for (size_t i = 0; i < count; i++)
        free(b->bands[i]);
    free(b->block);
    free(b->from);
    free(b);
}

void average_free_buffers(averager *v)
{
    while (v->unused != NULL) {
        struct average_buffers *b = v->unused;
        v->unused = b->next;
        free_buffers(b, v->count);
    }
}

/* Those of a closed stream, or new ones: fresh memory costs as much time as copying it. */
static struct average_buffers *take_buffers(const averager *v, fsdpck_error *err)
{
    averager *owner = (averager *)v;
    pthread_mutex_lock(&owner->lock);
    struct average_buffers *b = owner->unused;
    if (b != NULL)
        owner->unused = b->next;
    pthread_mutex_unlock(&owner->lock);
    if (b != NULL)
        return b;
    b = calloc(1, sizeof *b + v->count * sizeof *b->bands);
    bool complete = b != NULL;
    if (b != NULL) {
        b->from = calloc(v->count, sizeof *b->from);
        b->block = malloc(AVERAGE_BLOCK * sizeof(double));
        complete = b->from != NULL && b->block != NULL;
    }
    for (size_t i = 0; complete && i < v->count; i++) {
        b->bands[i] = malloc(AVERAGE_BAND_NBYTES);
        complete = b->bands[i] != NULL;
    }
    if (complete)
        return b;
    free_buffers(b, v->count);
    (void)error_set_nomem(err, v->count * AVERAGE_BAND_NBYTES);
    return NULL;
}

static void give_buffers(const averager *v, struct average_buffers *b)
{
    averager *owner = (averager *)v;
    if (b == NULL)
        return;
    pthread_mutex_lock(&owner->lock);
    b->next = owner->unused;
    owner->unused = b;
    pthread_mutex_unlock(&owner->lock);
}

/* --- reading bands --- */

/* An error of one input. */
static void name_input(const averager *v, size_t input, fsdpck_error *err)
{
    if (err != NULL && err->path[0] == '\0')
        error_path(err, v->inputs[input].name);
}

static fsdpck_status open_cursors(average_reader *r, fsdpck_error *err)
{
    for (size_t i = 0; i < r->v->count; i++) {
        const fsdpck_status st =
            box_cursor_open(&r->v->readers[i], average_tensor_of(r->v, r->t, i), r->offsets,
                            r->sizes, &r->cursors[i], err);
        if (st != FSDPCK_OK) {
            name_input(r->v, i, err);
            return st;
        }
    }
    return FSDPCK_OK;
}

fsdpck_status average_reader_open(average_reader *r, const averager *v, uint64_t chunk,
                                  fsdpck_error *err)
{
    const cat_chunk *k = catalogue_chunk(v->out, chunk);
    const cat_tensor *t = catalogue_tensor(v->out, k->tensor);
    const average_chunk *made = VEC_AT(&v->chunks, const average_chunk, k->aux);
    *r = (average_reader){.v = v,
                          .t = VEC_AT(&v->slots, const average_tensor, made->slot),
                          .ndim = t->ndim,
                          .itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes};
    catalogue_chunk_box(v->out, chunk, r->offsets, r->sizes);
    r->nelems = box_nelems(r->sizes, r->ndim);
    r->cursors = calloc(v->count, sizeof(box_cursor *));
    if (r->cursors == NULL)
        return error_set_nomem(err, v->count * sizeof(box_cursor *));
    r->buffers = take_buffers(v, err);
    return r->buffers == NULL ? FSDPCK_LIMIT : open_cursors(r, err);
}

static fsdpck_status read_band(const average_reader *r, size_t input, uint64_t n, fsdpck_error *err)
{
    box_cut cut = {.sizes = r->sizes, .ndim = r->ndim, .begin = r->next, .end = r->next + n};
    while (box_cut_next(&cut)) {
        uint64_t offsets[NDIM_MAX];
        for (unsigned d = 0; d < r->ndim; d++)
            offsets[d] = r->offsets[d] + cut.offsets_out[d];
        RETURN_IF(box_cursor_read(r->cursors[input], offsets, cut.sizes_out,
                                  r->buffers->bands[input] + (cut.flat_out - r->next) * r->itemsize,
                                  err));
    }
    return FSDPCK_OK;
}

fsdpck_status average_reader_next(average_reader *r, const uint8_t *const **bands, uint64_t *n,
                                  fsdpck_error *err)
{
    const uint64_t most = AVERAGE_BAND_NBYTES / r->itemsize;
    *n = r->nelems - r->next < most ? r->nelems - r->next : most;
    for (size_t i = 0; *n > 0 && i < r->v->count; i++) {
        const fsdpck_status st = read_band(r, i, *n, err);
        if (st != FSDPCK_OK) {
            name_input(r->v, i, err);
            return st;
        }
    }
    r->next += *n;
    *bands = (const uint8_t *const *)r->buffers->bands;
    return FSDPCK_OK;
}

fsdpck_status average_reader_finish(average_reader *r, fsdpck_error *err)
{
    for (size_t i = 0; i < r->v->count; i++) {
        const fsdpck_status st = box_cursor_finish(r->cursors[i], err);
        if (st != FSDPCK_OK) {
            name_input(r->v, i, err);
            return st;
        }
    }
    return FSDPCK_OK;
}

void average_reader_close(average_reader *r)
{
    for (size_t i = 0; r->cursors != NULL && i < r->v->count; i++)
        box_cursor_close(r->cursors[i]);
    free(r->cursors);
    r->cursors = NULL;
    if (r->v != NULL)
        give_buffers(r->v, r->buffers);
    r->buffers = NULL;
}

/* --- streams --- */

typedef struct average_stream {
    const averager *v;
    source_stream *other; /* of the template; then the rest is unused */
    average_reader reader;
    average_sum sum; /* of tensors that are computed */
    const uint8_t *const *bands;
    uint64_t at, left; /* numbers of the band: taken, and not */
    const uint8_t *ready;
    uint64_t ready_nbytes;
} average_stream;

static const char *name_of(const averager *v, const average_tensor *t)
{
    return catalogue_name(v->out, catalogue_tensor(v->out, t->tensor)->name);
}

fsdpck_status average_fail_special(const averager *v, const average_tensor *t, size_t culprit,
                                   fsdpck_error *err)
{
    const bool of_input = culprit < v->count;
    return FAIL_WITH(
        err, BADINPUT, AVERAGE_NONFINITE,
        ("'%s' %s NaN or infinity", name_of(v, t), of_input ? "contains" : "would become"),
        (path, of_input ? v->inputs[culprit].name : ""), (tensor, name_of(v, t)),
        (expected, "finite numbers in all inputs and in the average"));
}

static fsdpck_status fail_unequal(const averager *v, const average_reader *r, size_t input,
                                  uint64_t element, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, AVERAGE_DIFFER,
                     ("'%s' is not averaged, and differs between '%s' and '%s'", name_of(v, r->t),
                      v->from->name, v->inputs[input].name),
                     (path, v->inputs[input].name), (tensor, name_of(v, r->t)),
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

static fsdpck_status compute_block(average_stream *s, fsdpck_error *err)
{
    const uint64_t size = dtype_get(s->sum.type)->itemsize_bytes;
    const uint64_t n = s->left < AVERAGE_BLOCK ? s->left : AVERAGE_BLOCK;
    struct average_buffers *b = s->reader.buffers;
    size_t culprit;
    for (size_t i = 0; i < s->v->count; i++)
        b->from[i] = s->bands[i] + s->at * size;
    if (!average_sum_block(&s->sum, b->from, b->block, n, &culprit))
        return average_fail_special(s->v, s->reader.t, culprit, err);
    s->at += n;
    s->left -= n;
    s->ready = b->block;
    s->ready_nbytes = n * size;
    return FSDPCK_OK;
}

static fsdpck_status refill(average_stream *s, fsdpck_error *err)
{
    if (s->left == 0) {
        uint64_t n;
        RETURN_IF(average_reader_next(&s->reader, &s->bands, &n, err));
        if (n == 0)
            return FAIL(err, INTERNAL, NONE, "read past the end of an averaged chunk");
        if (!s->reader.t->computed)
            return compare_band(s, n, err);
        s->at = 0;
        s->left = n * (s->reader.itemsize / dtype_get(s->sum.type)->itemsize_bytes);
    }
    return compute_block(s, err);
}

static const average_chunk *chunk_of(const averager *v, uint64_t chunk)
{
    return VEC_AT(&v->chunks, const average_chunk, catalogue_chunk(v->out, chunk)->aux);
}

static void stream_close(source_stream *stream)
{
    average_stream *s = (average_stream *)stream;
    if (s == NULL)
        return;
    if (s->other != NULL)
        s->v->from->src->stream_close(s->other);
    average_sum_release(&s->sum);
    average_reader_close(&s->reader);
    free(s);
}

static fsdpck_status begin(average_stream *s, uint64_t chunk, fsdpck_error *err)
{
    const averager *v = s->v;
    const source *from = v->from->src;
    if (chunk_of(v, chunk)->slot == AVERAGE_NONE)
        return from->stream_open(from->ctx, chunk_of(v, chunk)->chunk, &s->other, err);
    RETURN_IF(average_reader_open(&s->reader, v, chunk, err));
    if (!s->reader.t->computed)
        return FSDPCK_OK;
    RETURN_IF(average_sum_init(&s->sum, &v->rule, v->count,
                               (dtype)catalogue_tensor(v->out, s->reader.t->tensor)->dtype, err));
    return v->rule.slerp ? average_slerp_factors(v, s->reader.t, s->sum.slerp, err) : FSDPCK_OK;
}

static fsdpck_status stream_open(void *ctx, uint64_t chunk, source_stream **stream,
                                 fsdpck_error *err)
{
    *stream = NULL;
    average_stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set_nomem(err, sizeof *s);
    s->v = ctx;
    const fsdpck_status st = begin(s, chunk, err);
    if (st != FSDPCK_OK)
        stream_close((source_stream *)s);
    else
        *stream = (source_stream *)s;
    return st;
}

static fsdpck_status stream_read(source_stream *stream, void *dst, uint64_t nbytes,
                                 fsdpck_error *err)
{
    average_stream *s = (average_stream *)stream;
    uint8_t *to = dst;
    if (s->other != NULL)
        return s->v->from->src->stream_read(s->other, dst, nbytes, err);
    while (nbytes > 0) {
        if (s->ready_nbytes == 0)
            RETURN_IF(refill(s, err));
        const uint64_t n = nbytes < s->ready_nbytes ? nbytes : s->ready_nbytes;
        memcpy(to, s->ready, n);
        s->ready += n;
        s->ready_nbytes -= n;
        to += n;
        nbytes -= n;
    }
    return FSDPCK_OK;
}

static fsdpck_status stream_finish(source_stream *stream, fsdpck_error *err)
{
    average_stream *s = (average_stream *)stream;
    averager *v = (averager *)s->v;
    if (s->other != NULL)
        return v->from->src->stream_finish(s->other, err);
    RETURN_IF(average_reader_finish(&s->reader, err));
    for (size_t i = 0; s->reader.t->computed && i < v->rule.count; i++)
        averager_add_distance(v, s->reader.t->tensor, i, s->sum.farthest[i]);
    return FSDPCK_OK;
}

/* --- the source --- */

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const averager *v = ctx;
    const average_chunk *k = chunk_of(v, chunk);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    if (k->slot == AVERAGE_NONE)
        return v->from->src->locate(v->from->src->ctx, k->chunk, where, err);
    const average_tensor *t = VEC_AT(&v->slots, const average_tensor, k->slot);
    catalogue_chunk_box(v->out, chunk, offsets, sizes);
    for (size_t i = 0; i < v->count; i++) {
        const fsdpck_status st =
            box_locate(&v->readers[i], average_tensor_of(v, t, i), offsets, sizes, err);
        if (st != FSDPCK_OK) {
            name_input(v, i, err);
            return st;
        }
    }
    *where = (place){.file = catalogue_chunk(v->out, chunk)->file,
                     .stream = true,
                     .rows = true,
                     .record_nbytes = catalogue_chunk(v->out, chunk)->nbytes};
    return FSDPCK_OK;
}

static fsdpck_status check_empty(void *ctx, uint64_t chunk, fsdpck_error *err)
{
    const averager *v = ctx;
    const source *s = v->from->src;
    return s->check_empty(s->ctx, chunk_of(v, chunk)->chunk, err);
}

static fsdpck_status read_at(void *ctx, uint32_t file, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    const source *s = ((const averager *)ctx)->from->src;
    return s->read_at(s->ctx, file, offset_bytes, dst, nbytes, err);
}

static uint64_t stream_nbytes(void *ctx, uint64_t chunk)
{
    const averager *v = ctx;
    const average_chunk *k = chunk_of(v, chunk);
    const source *s = v->from->src;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    if (k->slot == AVERAGE_NONE)
        return s->stream_nbytes == NULL ? 0 : s->stream_nbytes(s->ctx, k->chunk);
    const average_tensor *t = VEC_AT(&v->slots, const average_tensor, k->slot);
    uint64_t nbytes = (v->count + 4) * AVERAGE_BLOCK * sizeof(double);
    catalogue_chunk_box(v->out, chunk, offsets, sizes);
    for (size_t i = 0; i < v->count; i++)
        nbytes += AVERAGE_BAND_NBYTES +
                  box_cursor_nbytes(&v->readers[i], average_tensor_of(v, t, i), offsets, sizes);
    return v->rule.slerp ? 2 * nbytes : nbytes;
}

static stream_checksum stream_checksum_of(void *ctx, uint64_t chunk)
{
    const averager *v = ctx;
    const average_chunk *k = chunk_of(v, chunk);
    const source *s = v->from->src;
    return k->slot != AVERAGE_NONE || s->stream_checksum_of == NULL
               ? STREAM_CHECKSUM_UNKNOWN
               : s->stream_checksum_of(s->ctx, k->chunk);
}

static const char *replica_of(void *ctx, uint64_t chunk)
{
    const averager *v = ctx;
    const average_chunk *k = chunk_of(v, chunk);
    const source *s = v->from->src;
    return k->slot != AVERAGE_NONE ? NULL : s->replica_of(s->ctx, k->chunk);
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    const averager *v = ctx;
    for (size_t i = 0; i < v->count; i++) {
        const source *s = v->inputs[i].src;
        const fsdpck_status st =
            s->check_unchanged == NULL ? FSDPCK_OK : s->check_unchanged(s->ctx, err);
        if (st != FSDPCK_OK) {
            name_input(v, i, err);
            return st;
        }
    }
    return FSDPCK_OK;
}

void average_set_source(averager *v)
{
    const source *s = v->from->src;
    v->source = (source){.ctx = v,
                         .cat = v->out,
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
