/* Runs a plan with a compressed target (state/filter.h). Workers take cells in order; they fill,
 * checksum and compress each in a slot of a ring. Offsets are assigned in the order of the cells,
 * by the worker that finds the next one ready. So the file does not depend on timing, and no worker
 * waits for a slow cell until the ring is full of later ones. */
#include "exec/compress.h"

#include <stdlib.h>

#include "base/crc.h"

typedef enum slot_state { SLOT_FREE, SLOT_READY, SLOT_PLACED } slot_state;

typedef struct slot {
    slot_state state;
    uint32_t how;
    uint64_t cell; /* index of the cell in this slot; the next is nslots later */
    uint64_t nbytes;
    uint8_t *coded;
} slot;

typedef struct compression {
    struct exec *x;
    target *t;
    void **coders; /* of each worker */
    slot *slots;
    unsigned nslots; /* cell i is in slot i % nslots */
    pthread_mutex_t lock;
    pthread_cond_t moved; /* a slot is free again, or all is over */
    uint64_t next;        /* cell to be placed */
    bool placing;         /* a thread is placing it */
    fsdpck_status status; /* the first failure, which those that wait give up with */
    fsdpck_error error;
} compression;

uint64_t compress_worker_nbytes(const struct exec *x)
{
    const target_filter *p = &x->r.target->pack;
    return p->place == NULL ? 0 : COMPRESS_SLOTS_PER_WORKER * p->cell_nbytes_max + p->coder_nbytes;
}

uint64_t compress_tile_nbytes_min(const struct exec *x)
{
    const uint64_t most = x->r.target->pack.cell_nbytes_max;
    return most + (FILE_DIRECT_ALIGN - most % FILE_DIRECT_ALIGN) % FILE_DIRECT_ALIGN;
}

/* ---- failures ---- */

static fsdpck_status fail_run(compression *p, fsdpck_status st, const fsdpck_error *why)
{
    pthread_mutex_lock(&p->lock);
    if (p->status == FSDPCK_OK) {
        p->status = st;
        p->error = *why;
    }
    pthread_cond_broadcast(&p->moved);
    pthread_mutex_unlock(&p->lock);
    return st;
}

/* Until the cell that had the slot is written. */
static fsdpck_status wait_for_slot(compression *p, const slot *s, uint64_t index, fsdpck_error *err)
{
    pthread_mutex_lock(&p->lock);
    while (s->cell != index && p->status == FSDPCK_OK)
        pthread_cond_wait(&p->moved, &p->lock);
    const fsdpck_status st = p->status;
    if (st != FSDPCK_OK && err != NULL)
        *err = p->error;
    pthread_mutex_unlock(&p->lock);
    return st;
}

/* ---- one cell ---- */

static void checksum_cell(struct exec *x, const filter_cell *cell, const output_range *range,
                          const uint8_t *bytes)
{
    const target *t = x->r.target;
    const uint64_t chunk = catalogue_tensor(&t->cat, cell->tensor)->first_chunk;
    const range_part part = {
        .kind = RANGE_PART_CHUNK,
        .begin = range->begin,
        .end = range->end,
        .chunk = chunk,
        .chunk_begin = catalogue_chunk(&t->cat, chunk)->offset_bytes,
    };
    if (t->want_digest)
        exec_checksums_add_sparse(x, &part, bytes);
}

static fsdpck_status compress_cell(compression *p, unsigned worker_index, const filter_cell *cell,
                                   slot *s, fsdpck_error *err)
{
    struct exec *x = p->x;
    const catalogue *to = &p->t->cat;
    const cat_chunk *k = catalogue_chunk(to, catalogue_tensor(to, cell->tensor)->first_chunk);
    const output_range range = {k->file, k->offset_bytes + cell->at,
                                k->offset_bytes + cell->at + cell->nbytes};
    const uint8_t *bytes;
    RETURN_IF(exec_fill(x, worker_index, &range, &bytes, err));
    checksum_cell(x, cell, &range, bytes);
    RETURN_IF(p->t->pack.code(p->t, p->coders[worker_index], cell, bytes, s->coded, &s->nbytes,
                              &s->how, err));
    progress_add(x->r.progress, cell->nbytes);
    return FSDPCK_OK;
}

static fsdpck_status write_cell(compression *p, unsigned worker_index, slot *s, fsdpck_error *err)
{
    struct exec *x = p->x;
    filter_location *at = VEC_AT(&p->t->pack.places, filter_location, s->cell);
    at->crc64 = crc64_raw(0, s->coded, s->nbytes);
    x->workers[worker_index]->stats.bytes_written += s->nbytes;
    return output_write_at(x->out, 0, at->offset_bytes, s->coded, s->nbytes, err);
}

static fsdpck_status place_cell(compression *p, const slot *s, fsdpck_error *err)
{
    filter_location *at = VEC_AT(&p->t->pack.places, filter_location, s->cell);
    filter_cell cell;
    filter_get_cell(&p->t->pack, s->cell, &cell);
    at->nbytes = s->nbytes;
    return p->t->pack.place(p->t, &cell, s->nbytes, s->how, &at->offset_bytes, err);
}

/* The next cell if it is ready and no other thread places it; this thread then places it. */
static slot *claim_next(compression *p)
{
    slot *s = &p->slots[p->next % p->nslots];
    if (p->placing || p->status != FSDPCK_OK || s->state != SLOT_READY || s->cell != p->next)
        return NULL;
    p->placing = true;
    return s;
}

/* Places and writes ready cells, including those of other threads. */
static fsdpck_status advance(compression *p, unsigned worker_index, fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_OK;
    slot *s;
    pthread_mutex_lock(&p->lock);
    while (st == FSDPCK_OK && (s = claim_next(p)) != NULL) {
        pthread_mutex_unlock(&p->lock);
        st = place_cell(p, s, err);
        pthread_mutex_lock(&p->lock);
        p->placing = false;
        s->state = SLOT_PLACED;
        if (st == FSDPCK_OK) /* else no thread would place the later ones */
            p->next++;
        pthread_mutex_unlock(&p->lock);
        if (st == FSDPCK_OK)
            st = write_cell(p, worker_index, s, err);
        pthread_mutex_lock(&p->lock);
        s->state = SLOT_FREE;
        s->cell += p->nslots;
        pthread_cond_broadcast(&p->moved);
    }
    pthread_mutex_unlock(&p->lock);
    return st;
}

static fsdpck_status run_cell(compression *p, unsigned worker_index, uint64_t index,
                              fsdpck_error *err)
{
    slot *s = &p->slots[index % p->nslots];
    filter_cell cell;
    RETURN_IF(wait_for_slot(p, s, index, err));
    filter_get_cell(&p->t->pack, index, &cell);
    RETURN_IF(compress_cell(p, worker_index, &cell, s, err));
    pthread_mutex_lock(&p->lock);
    s->state = SLOT_READY;
    pthread_mutex_unlock(&p->lock);
    return advance(p, worker_index, err);
}

static fsdpck_status run_job(void *ctx, unsigned worker_index, uint64_t job, fsdpck_error *err)
{
    compression *p = ctx;
    fsdpck_error local = FSDPCK_ERROR_INIT;
    const fsdpck_status st = run_cell(p, worker_index, job, &local);
    if (st == FSDPCK_OK)
        return FSDPCK_OK;
    if (err != NULL)
        *err = local;
    return fail_run(p, st, &local);
}

/* ---- all of them ---- */

static fsdpck_status put_rest(void *ctx, uint64_t offset_bytes, const void *bytes, uint64_t nbytes,
                              fsdpck_error *err)
{
    struct exec *x = ctx;
    x->stats.bytes_written += nbytes;
    target_add_file_crc(x->r.target, 0, offset_bytes, bytes, nbytes);
    return output_write_at(x->out, 0, offset_bytes, bytes, nbytes, err);
}

/* The file's size is known: computes its checksum and writes the bytes between cells. */
static fsdpck_status finish(compression *p, fsdpck_error *err)
{
    struct exec *x = p->x;
    target *t = p->t;
    uint64_t nbytes = 0;
    RETURN_IF(t->pack.finish(t, &nbytes, err));
    catalogue_file(&t->cat, 0)->nbytes = nbytes;
    output_set_nbytes(x->out, 0, nbytes);
    for (size_t i = 0; t->want_file_crc && i < t->pack.places.count; i++) {
        const filter_location *at = VEC_AT(&t->pack.places, const filter_location, i);
        t->file_crc[0] ^= crc64_shift(at->crc64, nbytes - at->offset_bytes - at->nbytes);
    }
    return t->pack.put_rest(t, put_rest, x, err);
}

static fsdpck_status begin(compression *p, fsdpck_error *err)
{
    const target_filter *pack = &p->t->pack;
    const unsigned nworkers = p->x->nworkers;
    if (pack->cell_count > 0 &&
        vec_push_n(&p->t->pack.places, (size_t)pack->cell_count, err) == NULL)
        return FSDPCK_LIMIT;
    p->coders = calloc(nworkers, sizeof *p->coders);
    p->slots = calloc(p->nslots, sizeof *p->slots);
    if (p->coders == NULL || p->slots == NULL)
        return error_set_nomem(err, p->nslots * sizeof *p->slots);
    for (unsigned i = 0; i < nworkers; i++)
        RETURN_IF(pack->coder_new(p->t, &p->coders[i], err));
    for (unsigned i = 0; i < p->nslots; i++) {
        p->slots[i].cell = i;
        p->slots[i].coded = malloc(pack->cell_nbytes_max + 1);
        if (p->slots[i].coded == NULL)
            return error_set_nomem(err, pack->cell_nbytes_max);
    }
    p->x->stats.buffer_nbytes += nworkers * compress_worker_nbytes(p->x);
    return FSDPCK_OK;
}

static void end(compression *p)
{
    for (unsigned i = 0; p->coders != NULL && i < p->x->nworkers; i++)
        p->t->pack.coder_free(p->coders[i]);
    for (unsigned i = 0; p->slots != NULL && i < p->nslots; i++)
        free(p->slots[i].coded);
    free(p->coders);
    free(p->slots);
    pthread_cond_destroy(&p->moved);
    pthread_mutex_destroy(&p->lock);
}

fsdpck_status compress_run(struct exec *x, fsdpck_error *err)
{
    compression p = {.x = x, .t = x->r.target, .nslots = COMPRESS_SLOTS_PER_WORKER * x->nworkers};
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.moved, NULL);
    fsdpck_status st = begin(&p, err);
    if (st == FSDPCK_OK)
        st = exec_pool_run(x, x->nworkers, p.t->pack.cell_count, run_job, &p, x->r.cancel, err);
    if (st == FSDPCK_OK)
        st = finish(&p, err);
    end(&p);
    return st;
}
