/* Joint tiles: matrices stored across, as transposed ones are. A tile of such a matrix needs a short run
 * of each of its rows, for which nearly all of it is read. All workers fill one tile together, so that
 * tiles are large and few although memory is small: each worker reads a part of the rows. Then each
 * writes a part of the tile. */
#include "base/platform.h"
#include "exec/exec_internal.h"

/* Memory for joint tiles, beyond that of the workers' steps. Less of it means more reads. */
#define JOINT_NBYTES ((uint64_t)3 << 20)

/* Jobs of a worker: the others take those of one that waits. */
#define FILL_JOBS 4u

typedef struct joint_tile {
    struct exec *x;
    uint64_t most_nbytes; /* from the block that it begins in */
    uint64_t part_nbytes; /* written at a time */
    output_range range;
    uint8_t *tile;
    bool is_kept; /* an earlier run wrote it */
    kept_range kept;
    uint64_t overflows; /* elements of the tile out of range of their new dtype */
} joint_tile;

/* Consecutive items of one file. */
static bool next_items(const struct exec *x, uint64_t *job, output_range *r)
{
    const uint64_t count = exec_own_item_count(x);
    bool found = false;
    for (; *job < count; ++*job) {
        output_range item;
        plan_get_item(x->r.plan, exec_own_item(x, *job), &item);
        const bool suits = exec_is_joint(x, &item);
        if (found && (!suits || item.file != r->file || item.begin != r->end))
            break;
        if (suits && !found)
            *r = item;
        r->end = suits ? item.end : r->end;
        found = found || suits;
    }
    return found;
}

static uint64_t align_down(uint64_t at)
{
    return at - at % FILE_DIRECT_ALIGN;
}

static uint64_t align_up(uint64_t at)
{
    return align_down(at + FILE_DIRECT_ALIGN - 1);
}

static uint64_t matrix_nbytes(const struct exec *x, uint64_t chunk)
{
    const catalogue *to = &x->r.target->cat;
    const uint32_t tensor = catalogue_chunk(to, chunk)->tensor;
    const cat_tensor *t = catalogue_tensor(to, tensor);
    const unsigned dim = x->tensor_flags[plan_source_tensor(x->r.plan, tensor)] >> TENSOR_DIM_AT;
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(to, chunk, NULL, sizes);
    return box_nelems(sizes + dim, t->ndim - dim) * dtype_get((dtype)t->dtype)->itemsize_bytes;
}

/* A matrix is read once for each tile that it meets, so that tiles end where matrices end. A matrix that is
 * longer is divided evenly. */
static uint64_t tile_end(const joint_tile *t, const output_range *whole, uint64_t begin)
{
    const output_range range = {whole->file, begin, align_down(begin) + t->most_nbytes};
    uint64_t cut = begin, matrix_end = range.end;
    range_walk walk;
    range_part part;
    if (whole->end <= range.end)
        return whole->end;
    range_walk_begin(&walk, t->x->r.plan, &range);
    while (range_walk_next(&walk, &part)) {
        if (!exec_part_is_joint(t->x, &part)) {
            cut = part.end;
            continue;
        }
        const uint64_t nbytes = matrix_nbytes(t->x, part.chunk);
        const uint64_t at = part.end - part.chunk_begin;
        const uint64_t last_end = part.chunk_begin + at / nbytes * nbytes;
        cut = last_end > part.begin ? last_end : cut;
        matrix_end = part.chunk_begin + (at + nbytes - 1) / nbytes * nbytes;
    }
    if (cut > begin)
        return cut;
    matrix_end = matrix_end < whole->end ? matrix_end : whole->end;
    const uint64_t tiles = (matrix_end - align_down(begin) + t->most_nbytes - 1) / t->most_nbytes;
    const uint64_t end = align_up(begin + (matrix_end - begin) / tiles);
    return end < range.end ? end : range.end;
}

/* The tile is that of the first worker. */
static fsdpck_status fill_part(void *ctx, unsigned worker_index, uint64_t job, fsdpck_error *err)
{
    const joint_tile *t = ctx;
    worker *w = t->x->workers[worker_index];
    RETURN_IF(cancel_check(t->x->r.cancel, err));
    w->gather.part = (unsigned)job;
    w->gather.parts = FILL_JOBS * t->x->nworkers;
    const fsdpck_status st = fill_chunks(w, t->x->workers[0], &t->range, err);
    w->gather.parts = 0;
    w->gather.base = w->tile;
    return st;
}

static output_range part_of(const joint_tile *t, uint64_t job)
{
    const uint64_t first = align_down(t->range.begin);
    const uint64_t begin = first + job * t->part_nbytes, end = begin + t->part_nbytes;
    return (output_range){.file = t->range.file,
                          .begin = job == 0 ? t->range.begin : begin,
                          .end = end < t->range.end ? end : t->range.end};
}

static fsdpck_status finish_part(void *ctx, unsigned worker_index, uint64_t job, fsdpck_error *err)
{
    const joint_tile *t = ctx;
    worker *w = t->x->workers[worker_index];
    uint8_t *own = w->tile;
    const output_range part = part_of(t, job);
    tile_parts_find(&w->parts, t->x->r.plan, &part);
    w->tile = t->tile + job * t->part_nbytes;
    w->at = part.begin % FILE_DIRECT_ALIGN;
    const kept_range kept = job == 0 ? t->kept : (kept_range){.has_others = t->kept.has_others};
    const fsdpck_status st =
        t->is_kept ? exec_finish_kept(w, &part, part.begin, &kept, err)
                   : exec_finish_tile(w, &part, part.begin, true, job == 0 ? t->overflows : 0, err);
    w->tile = own;
    return st;
}

static uint64_t count_overflows(const struct exec *x)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < x->nworkers; i++)
        count += x->workers[i]->stats.cast_overflows;
    return count;
}

static fsdpck_status fill_all(joint_tile *t, fsdpck_error *err)
{
    struct exec *x = t->x;
    worker *first = x->workers[0];
    const uint64_t before = count_overflows(x);
    RETURN_IF(resume_read(first, &t->range, first->tile + first->at, &t->is_kept, &t->kept, err));
    if (t->is_kept)
        return FSDPCK_OK;
    tile_parts_find(&first->parts, x->r.plan, &t->range);
    (void)fill_non_chunks(first, &t->range);
    RETURN_IF(
        exec_pool_run(x, x->nworkers, FILL_JOBS * x->nworkers, fill_part, t, x->r.cancel, err));
    t->overflows = count_overflows(x) - before;
    return FSDPCK_OK;
}

static fsdpck_status run_tile(joint_tile *t, fsdpck_error *err)
{
    struct exec *x = t->x;
    worker *first = x->workers[0];
    const uint64_t nbytes = t->range.end - align_down(t->range.begin);
    t->part_nbytes = align_up((nbytes + x->nworkers - 1) / x->nworkers);
    first->at = t->range.begin % FILE_DIRECT_ALIGN;
    RETURN_IF(fill_all(t, err));
    return pool_run(x->nworkers, (nbytes + t->part_nbytes - 1) / t->part_nbytes, finish_part, t,
                    x->r.cancel, err);
}

static uint64_t most_nbytes(const struct exec *x)
{
    const uint64_t nbytes = x->nworkers * x->step_nbytes + JOINT_NBYTES;
    return nbytes < x->tile_nbytes ? nbytes : x->tile_nbytes;
}

fsdpck_status joint_tile_run_items(struct exec *x, fsdpck_error *err)
{
    joint_tile t = {.x = x, .most_nbytes = most_nbytes(x), .tile = x->workers[0]->tile};
    output_range items;
    uint64_t job = 0;
    while (next_items(x, &job, &items)) {
        output_range range = {.file = items.file, .end = items.begin};
        for (unsigned i = 1; i < x->nworkers; i++)
            platform_discard(x->workers[i]->tile, x->tile_nbytes);
        while (exec_next_range(x, &items, &range)) {
            t.range = (output_range){.file = range.file, .end = range.begin};
            while (t.range.end < range.end) {
                t.range.begin = t.range.end;
                t.range.end = tile_end(&t, &range, t.range.begin);
                RETURN_IF(run_tile(&t, err));
            }
        }
    }
    return FSDPCK_OK;
}
