/* average_reader.c: bands of every input. Fresh memory costs as much time as copying it, and a cursor on a chunk reads
 * its header, so buffers and cursors are used again. */
#include <stdlib.h>
#include <string.h>

#include "average/average_internal.h"

/* --- buffers --- */

static void close_cursors(struct average_buffers *b, size_t count)
{
    for (size_t i = 0; b->cursors != NULL && i < count; i++)
        box_cursor_close(b->cursors[i]);
    free(b->cursors);
    b->cursors = NULL;
}

static void free_buffers(struct average_buffers *b, size_t count)
{
    if (b == NULL)
        return;
    close_cursors(b, count);
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

static struct average_buffers *new_buffers(const averager *v, fsdpck_error *err)
{
    struct average_buffers *b = calloc(1, sizeof *b + v->count * sizeof *b->bands);
    bool complete = b != NULL;
    if (b != NULL) {
        b->from = calloc(v->count, sizeof *b->from);
        b->block = malloc(AVERAGE_BLOCK * sizeof(double));
        complete = b->from != NULL && b->block != NULL;
    }
    for (size_t i = 0; complete && i < v->count; i++) {
        b->bands[i] = malloc(v->band_nbytes);
        complete = b->bands[i] != NULL;
    }
    if (complete)
        return b;
    free_buffers(b, v->count);
    (void)error_set_nomem(err, v->count * v->band_nbytes);
    return NULL;
}

/* Those with cursors on the chunk, else those that have not been used for the longest time, or new ones. */
static struct average_buffers *take_buffers(const averager *v, uint64_t chunk, fsdpck_error *err)
{
    averager *owner = (averager *)v;
    struct average_buffers **at = &owner->unused, *b;
    pthread_mutex_lock(&owner->lock);
    while (*at != NULL && (*at)->next != NULL && ((*at)->cursors == NULL || (*at)->chunk != chunk))
        at = &(*at)->next;
    b = *at;
    if (b != NULL)
        *at = b->next;
    pthread_mutex_unlock(&owner->lock);
    if (b != NULL && b->chunk != chunk)
        close_cursors(b, v->count);
    return b != NULL ? b : new_buffers(v, err);
}

static void give_buffers(const averager *v, struct average_buffers *b)
{
    averager *owner = (averager *)v;
    pthread_mutex_lock(&owner->lock);
    b->next = owner->unused;
    owner->unused = b;
    pthread_mutex_unlock(&owner->lock);
}

/* --- reading bands --- */

uint64_t averager_further_nbytes(const averager *v)
{
    return atomic_load(&v->further_nbytes);
}

void averager_add_further_nbytes(averager *v, uint64_t nbytes)
{
    atomic_fetch_add(&v->further_nbytes, nbytes);
}

/* On a whole chunk, so that its other boxes can use them. */
static fsdpck_status open_cursors(const average_reader *r, uint64_t chunk, const uint64_t *offsets,
                                  const uint64_t *sizes, fsdpck_error *err)
{
    struct average_buffers *b = r->buffers;
    b->chunk = chunk;
    b->cursors = calloc(r->v->count, sizeof(box_cursor *));
    if (b->cursors == NULL)
        return error_set_nomem(err, r->v->count * sizeof(box_cursor *));
    for (size_t i = 0; i < r->v->count; i++) {
        const fsdpck_status st =
            box_cursor_open(&r->v->readers[i], average_tensor_of(r->v, r->t, i), offsets, sizes,
                            &b->cursors[i], err);
        if (st != FSDPCK_OK) {
            average_name_input(r->v, i, err);
            return st;
        }
    }
    return FSDPCK_OK;
}

fsdpck_status average_reader_open(average_reader *r, const averager *v, uint64_t chunk,
                                  const uint64_t *offsets, const uint64_t *sizes, fsdpck_error *err)
{
    const cat_chunk *k = catalogue_chunk(v->out, chunk);
    const cat_tensor *t = catalogue_tensor(v->out, k->tensor);
    const average_chunk *made = VEC_AT(&v->chunks, const average_chunk, k->aux);
    uint64_t chunk_offsets[NDIM_MAX], chunk_sizes[NDIM_MAX];
    *r = (average_reader){.v = v,
                          .t = VEC_AT(&v->slots, const average_tensor, made->slot),
                          .ndim = t->ndim,
                          .itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes};
    catalogue_chunk_box(v->out, chunk, chunk_offsets, chunk_sizes);
    for (unsigned d = 0; d < r->ndim; d++) {
        r->offsets[d] = chunk_offsets[d] + offsets[d];
        r->sizes[d] = sizes[d];
    }
    r->nelems = box_nelems(r->sizes, r->ndim);
    r->buffers = take_buffers(v, chunk, err);
    if (r->buffers == NULL)
        return FSDPCK_LIMIT;
    return r->buffers->cursors != NULL ? FSDPCK_OK
                                       : open_cursors(r, chunk, chunk_offsets, chunk_sizes, err);
}

static fsdpck_status read_band(const average_reader *r, size_t input, uint64_t n, fsdpck_error *err)
{
    box_cut cut = {.sizes = r->sizes, .ndim = r->ndim, .begin = r->next, .end = r->next + n};
    while (box_cut_next(&cut)) {
        uint64_t offsets[NDIM_MAX];
        for (unsigned d = 0; d < r->ndim; d++)
            offsets[d] = r->offsets[d] + cut.offsets_out[d];
        RETURN_IF(box_cursor_read(r->buffers->cursors[input], offsets, cut.sizes_out,
                                  r->buffers->bands[input] + (cut.flat_out - r->next) * r->itemsize,
                                  err));
    }
    return FSDPCK_OK;
}

fsdpck_status average_reader_next(average_reader *r, const uint8_t *const **bands, uint64_t *n,
                                  fsdpck_error *err)
{
    const uint64_t most = r->v->band_nbytes / r->itemsize;
    *n = r->nelems - r->next < most ? r->nelems - r->next : most;
    for (size_t i = 0; *n > 0 && i < r->v->count; i++) {
        const fsdpck_status st = read_band(r, i, *n, err);
        if (st != FSDPCK_OK) {
            average_name_input(r->v, i, err);
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
        const fsdpck_status st = box_cursor_finish(r->buffers->cursors[i], err);
        if (st != FSDPCK_OK) {
            average_name_input(r->v, i, err);
            return st;
        }
    }
    return FSDPCK_OK;
}

void average_reader_close(average_reader *r, bool keep)
{
    if (r->buffers == NULL)
        return;
    if (!keep)
        close_cursors(r->buffers, r->v->count);
    give_buffers(r->v, r->buffers);
    r->buffers = NULL;
}

fsdpck_status average_fail_special(const averager *v, const average_tensor *t, size_t culprit,
                                   fsdpck_error *err)
{
    const dtype d = (dtype)catalogue_tensor(v->out, t->tensor)->dtype;
    if (culprit < v->count)
        return FAIL_WITH(err, BADINPUT, AVERAGE_NONFINITE,
                         ("'%s' contains NaN or infinity", average_name(v, t)),
                         (path, v->inputs[culprit].name), (tensor, average_name(v, t)),
                         (expected, "finite numbers in all inputs"));
    return FAIL_WITH(err, BADINPUT, AVERAGE_OVERFLOW,
                     ("'%s': the sum overflows %s", average_name(v, t), dtype_get(d)->name),
                     (tensor, average_name(v, t)));
}
