/* Runs items on the threads of one process: an item is an output range, processed tile by tile.
 * Also contains the engine of threads. */
#include <stdlib.h>
#include <string.h>

#include "exec/column_group.h"
#include "exec/exec_internal.h"
#include "exec/tile_set.h"

/* Staging that stays in the caches near the core is faster to copy out of than more of it. */
#define STAGING_NBYTES_MAX ((uint64_t)2 << 20)
/* A worker's own tile of a matrix stored across: the smallest with which the matrix is read at most
 * this many times. */
#define ACROSS_READS 4u

static uint64_t tensor_fill_nbytes(const struct exec *x, uint32_t target_tensor, uint64_t step)
{
    const catalogue *from = plan_source(x->r.plan);
    const uint32_t tensor = plan_source_tensor(x->r.plan, target_tensor);
    const cat_tensor *t = catalogue_tensor(from, tensor);
    const unsigned flags = x->tensor_flags[tensor], dim = flags >> TENSOR_DIM_AT;
    uint64_t tile = x->tile_nbytes;
    if (flags & TENSOR_WIDE)
        return tile;
    if (!(flags & TENSOR_ACROSS))
        return step;
    const uint64_t nbytes = box_nelems(catalogue_shape(from, tensor) + dim, t->ndim - dim) *
                            dtype_get((dtype)t->dtype)->itemsize_bytes;
    while (tile % (2 * FILE_DIRECT_ALIGN) == 0 && tile / 2 >= x->step_nbytes &&
           tile / 2 >= nbytes / ACROSS_READS)
        tile /= 2;
    return tile;
}

/* Bytes of an item to fill at a time: small steps fit the caches, but larger tiles give longer
 * reads of strided sources. */
static uint64_t fill_nbytes(const struct exec *x, const output_range *item, uint64_t step)
{
    const catalogue *to = &x->r.target->cat;
    range_walk walk;
    range_part part;
    uint64_t most = x->engine->whole_tiles && !exec_range_is_plain(x, item) ? x->tile_nbytes : step;
    range_walk_begin(&walk, x->r.plan, item);
    while (most < x->tile_nbytes && range_walk_next(&walk, &part)) {
        if (part.kind != RANGE_PART_CHUNK)
            continue;
        const uint64_t nbytes =
            tensor_fill_nbytes(x, catalogue_chunk(to, part.chunk)->tensor, step);
        most = nbytes > most ? nbytes : most;
    }
    return most;
}

fsdpck_status exec_run_tile(worker *w, const output_range *range, uint64_t item_begin,
                            fsdpck_error *err)
{
    struct exec *x = w->x;
    const uint64_t overflows = w->stats.cast_overflows;
    kept_range kept;
    bool wanted, is_kept;
    w->at = range->begin % FILE_DIRECT_ALIGN;
    RETURN_IF(cancel_check(x->r.cancel, err));
    RETURN_IF(resume_read(w, range, w->tile + w->at, &is_kept, &kept, err));
    if (is_kept)
        return exec_finish_kept(w, range, item_begin, &kept, err);
    RETURN_IF(fill_tile(w, range, &wanted, err));
    return exec_finish_tile(w, range, item_begin, wanted, w->stats.cast_overflows - overflows, err);
}

/* A range without chunks of column groups, tile by tile. */
static fsdpck_status run_range(worker *w, const output_range *whole, uint64_t item_begin,
                               fsdpck_error *err)
{
    const uint64_t nbytes = fill_nbytes(w->x, whole, w->x->step_nbytes);
    output_range tile = {.file = whole->file, .end = whole->begin};
    while (exec_next_tile(whole, nbytes, &tile))
        RETURN_IF(exec_run_tile(w, &tile, item_begin, err));
    return FSDPCK_OK;
}

/* This rank's jobs: items of the plan, alone or in sets, then neighboring row blocks of column groups. */
typedef struct thread_items {
    struct exec *x;
    tile_sets sets;
    uint64_t row_block;
} thread_items;

static fsdpck_status run_item(worker *w, uint64_t item, fsdpck_error *err)
{
    const struct exec *x = w->x;
    output_range whole;
    plan_get_item(x->r.plan, item, &whole);
    output_range range = {.file = whole.file, .end = whole.begin};
    if (exec_is_joint(x, &whole))
        return FSDPCK_OK; /* see joint_tile.c */
    while (exec_next_range(x, &whole, &range))
        RETURN_IF(run_range(w, &range, whole.begin, err));
    return FSDPCK_OK;
}

/* With files on other hosts, workers begin at different places, so that they read from several hosts
 * at a time: job i is the (i / workers)th of part i % workers. */
static uint64_t choose_job(const struct exec *x, uint64_t job, uint64_t jobs)
{
    if (x->r.source_folder == NULL || job >= jobs)
        return job;
    const uint64_t part = job % x->nworkers, more = jobs % x->nworkers;
    return part * (jobs / x->nworkers) + (part < more ? part : more) + job / x->nworkers;
}

static fsdpck_status run_job(void *ctx, unsigned worker_index, uint64_t number, fsdpck_error *err)
{
    const thread_items *s = ctx;
    worker *w = s->x->workers[worker_index];
    const uint64_t job = choose_job(s->x, number, s->sets.jobs);
    if (job >= s->sets.jobs)
        return column_group_run_item(w, s->row_block + (job - s->sets.jobs), err);
    const tile_set *set = tile_sets_of_job(&s->sets, job);
    return set->step_nbytes > 0 ? tile_set_run(w, &s->sets, set, job, err)
                                : run_item(w, tile_set_item(s->x, &s->sets, set, job), err);
}

void exec_fill_limits(const struct exec *x, unsigned *workers, uint64_t *nbytes)
{
    *workers = x->nworkers;
    *nbytes = x->tile_nbytes;
}

uint64_t exec_fill_nbytes(const struct exec *x, const output_range *range, uint64_t step_nbytes)
{
    return fill_nbytes(x, range, step_nbytes);
}

fsdpck_status exec_fill(struct exec *x, unsigned worker_index, const output_range *range,
                        const uint8_t **bytes, fsdpck_error *err)
{
    worker *w = x->workers[worker_index];
    bool wanted;
    w->at = range->begin % FILE_DIRECT_ALIGN;
    *bytes = w->tile + w->at;
    return fill_tile(w, range, &wanted, err);
}

fsdpck_status engine_threads_run(struct exec *x, fsdpck_error *err)
{
    thread_items s = {.x = x, .row_block = x->shared ? x->own_row_block : 0};
    const uint64_t bands = x->shared ? x->own_row_block_count : x->column_group_items;
    bool done;
    RETURN_IF(x->engine->run_items(x, &done, err));
    fsdpck_status st = done ? FSDPCK_OK : tile_sets_find(&s.sets, x, err);
    if (st == FSDPCK_OK)
        st = exec_pool_run(x, x->nworkers, s.sets.jobs + bands, run_job, &s, x->r.cancel, err);
    tile_sets_release(&s.sets);
    return st;
}

/* ---- the engine of threads: the reading thread places the data ---- */

static fsdpck_status reserve(worker *w, uint64_t nbytes, const uint8_t *dst, unsigned boxes,
                             unsigned dims, uint8_t **buffer, fsdpck_error *err)
{
    (void)nbytes, (void)dst, (void)boxes, (void)dims, (void)err;
    *buffer = w->staging;
    return FSDPCK_OK;
}

static void place_box(worker *w, const element_ops *c, const strided *s, uint8_t *dst,
                      const uint8_t *src)
{
    if (element_ops_is_copy(c))
        strided_copy(s, dtype_get(c->from)->itemsize_bytes, dst, src);
    else
        w->stats.cast_overflows += element_ops_box(c, s, dst, src, w->scratch);
}

static void place_run(worker *w, uint8_t *dst, const uint8_t *src, uint64_t nbytes)
{
    (void)w;
    memcpy(dst, src, nbytes);
}

const engine_place place_by_threads = {
    .direct = true, .reserve = reserve, .box = place_box, .run = place_run};

static bool suits(const exec_request *r)
{
    (void)r;
    return true;
}

static fsdpck_status do_nothing(struct exec *x, fsdpck_error *err)
{
    (void)x, (void)err;
    return FSDPCK_OK;
}

static void close_nothing(struct exec *x)
{
    (void)x;
}

static void end_nothing(struct exec *x, bool in_order)
{
    (void)x, (void)in_order;
}

static uint64_t staging_span(uint64_t staging_nbytes)
{
    return staging_nbytes;
}

static uint64_t device_nbytes(const struct exec *x, uint64_t tile_span, uint64_t staging_nbytes)
{
    (void)x, (void)tile_span, (void)staging_nbytes;
    return 0;
}

static fsdpck_status worker_open(worker *w, uint64_t tile_span, fsdpck_error *err)
{
    (void)tile_span, (void)err;
    w->memory = aligned_alloc(FILE_DIRECT_ALIGN, w->memory_nbytes);
    return FSDPCK_OK;
}

static void worker_close(worker *w)
{
    free(w->memory);
    w->memory = NULL;
}

static fsdpck_status run_items(struct exec *x, bool *done, fsdpck_error *err)
{
    (void)x, (void)err;
    *done = false;
    return FSDPCK_OK;
}

static fsdpck_status fill_nothing(worker *w, const output_range *range, bool *done,
                                  fsdpck_error *err)
{
    (void)w, (void)range, (void)err;
    *done = false;
    return FSDPCK_OK;
}

static fsdpck_status fill(worker *w, const engine_fill *f, bool *done, fsdpck_error *err)
{
    (void)w, (void)f, (void)err;
    *done = false;
    return FSDPCK_OK;
}

static void note_exchanged(const struct exec *x, uint64_t nbytes)
{
    (void)x, (void)nbytes;
}

const engine engine_threads = {
    .suits = suits,
    .staging_nbytes_max = STAGING_NBYTES_MAX,
    .open = do_nothing,
    .close = close_nothing,
    .staging_span = staging_span,
    .device_nbytes = device_nbytes,
    .worker_open = worker_open,
    .worker_close = worker_close,
    .begin = do_nothing,
    .end = end_nothing,
    .run_items = run_items,
    .fill_tile = fill_nothing,
    .fill = fill,
    .note_exchanged = note_exchanged,
};
