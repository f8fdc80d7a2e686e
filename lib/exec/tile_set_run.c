/* One step of a set of tiles: the same part of each file. Reads go through the source once for all of them. */
#include <stdlib.h>

#include "exec/tile_set.h"

/* Most that is gathered before reads are sorted and joined. */
#define GATHER_PARTS  (GATHER_READ_OPS / 4)
#define GATHER_NBYTES ((uint64_t)1 << 20)

/* The part of one file. */
typedef struct set_tile {
    output_range whole; /* of the step */
    output_range range; /* of it: without chunks of column groups */
    uint8_t *bytes;     /* of the block in which range.begin is */
    bool is_active;     /* the range is not empty */
    bool is_kept;       /* an earlier run wrote it */
    kept_range kept;
    range_walk walk;
    range_part part;
    bool has_part;
} set_tile;

typedef struct set_step {
    worker *worker;
    uint8_t *own_tile; /* the worker's */
    set_tile *tiles;
    uint32_t count;
    uint64_t parts, nbytes; /* to be gathered */
} set_step;

static void use_tile(const set_step *b, const set_tile *m)
{
    b->worker->tile = m->bytes;
    b->worker->at = m->range.begin % FILE_DIRECT_ALIGN;
}

/* Everything but chunks; or all of it, if an earlier run wrote it. */
static fsdpck_status begin_tile(set_step *b, set_tile *m, fsdpck_error *err)
{
    worker *w = b->worker;
    use_tile(b, m);
    RETURN_IF(resume_read(w, &m->range, w->tile + w->at, &m->is_kept, &m->kept, err));
    if (m->is_kept)
        return FSDPCK_OK;
    tile_parts_find(&w->parts, w->x->r.plan, &m->range);
    (void)fill_non_chunks(w, &m->range);
    b->parts += w->parts.count;
    b->nbytes += m->range.end - m->range.begin;
    range_walk_begin(&m->walk, w->x->r.plan, &m->range);
    m->has_part = range_walk_next(&m->walk, &m->part);
    return FSDPCK_OK;
}

/* Parts that begin before `end`. */
static fsdpck_status gather_until(const set_step *b, set_tile *m, uint64_t end, fsdpck_error *err)
{
    worker *w = b->worker;
    const int64_t at = (m->bytes - b->own_tile) + (int64_t)(m->range.begin % FILE_DIRECT_ALIGN);
    while (m->has_part && m->part.begin < end) {
        const range_part *p = &m->part;
        if (p->kind == RANGE_PART_CHUNK)
            RETURN_IF(gather_elements(w, p->chunk, p->first_elem, p->end_elem,
                                      at + ((int64_t)p->chunk_begin - (int64_t)m->range.begin),
                                      err));
        m->has_part = range_walk_next(&m->walk, &m->part);
    }
    return FSDPCK_OK;
}

/* A little of each file in turn: their reads are neighbors, and are joined. */
static fsdpck_status gather_tiles(const set_step *b, fsdpck_error *err)
{
    worker *w = b->worker;
    const uint64_t by_parts = b->parts / GATHER_PARTS, by_nbytes = b->nbytes / GATHER_NBYTES;
    const uint64_t turns = (by_parts > by_nbytes ? by_parts : by_nbytes) + 1;
    for (uint64_t turn = 1; turn <= turns; turn++) {
        RETURN_IF(cancel_check(w->x->r.cancel, err));
        for (uint32_t i = 0; i < b->count; i++) {
            set_tile *m = &b->tiles[i];
            const uint64_t nbytes = m->range.end - m->range.begin;
            if (m->is_active && !m->is_kept)
                RETURN_IF(gather_until(b, m, m->range.begin + nbytes * turn / turns, err));
        }
        RETURN_IF(gather_flush(w, err));
    }
    return FSDPCK_OK;
}

/* Elements out of range of their new dtype are known for all files together: then nothing is recorded. */
static fsdpck_status finish_tile(const set_step *b, const set_tile *m, bool has_overflows,
                                 fsdpck_error *err)
{
    worker *w = b->worker;
    use_tile(b, m);
    tile_parts_find(&w->parts, w->x->r.plan, &m->range);
    if (m->is_kept)
        return exec_finish_kept(w, &m->range, m->range.begin, &m->kept, err);
    return exec_finish_tile(w, &m->range, m->range.begin, true, has_overflows ? UINT64_MAX : 0,
                            err);
}

static fsdpck_status run_ranges(set_step *b, fsdpck_error *err)
{
    worker *w = b->worker;
    const uint64_t before = w->stats.cast_overflows;
    b->parts = b->nbytes = 0;
    for (uint32_t i = 0; i < b->count; i++)
        if (b->tiles[i].is_active)
            RETURN_IF(begin_tile(b, &b->tiles[i], err));
    w->gather.grouped = true;
    RETURN_IF(gather_tiles(b, err));
    w->gather.grouped = false;
    for (uint32_t i = 0; i < b->count; i++)
        if (b->tiles[i].is_active)
            RETURN_IF(finish_tile(b, &b->tiles[i], w->stats.cast_overflows > before, err));
    return FSDPCK_OK;
}

/* False where no file has more. */
static bool next_ranges(set_step *b)
{
    bool any = false;
    for (uint32_t i = 0; i < b->count; i++) {
        set_tile *m = &b->tiles[i];
        m->is_active = exec_next_range(b->worker->x, &m->whole, &m->range);
        any = any || m->is_active;
    }
    return any;
}

static void begin_step(set_step *b, const tile_sets *t, const tile_set *s, uint64_t local)
{
    const struct exec *x = b->worker->x;
    const uint64_t steps = (plan_tile_nbytes(x->r.plan) + s->step_nbytes - 1) / s->step_nbytes;
    const uint64_t item = local / steps, step = local % steps;
    b->count = s->file_count;
    for (uint32_t i = 0; i < b->count; i++) {
        const tile_set_file *f = VEC_AT(&t->files, const tile_set_file, s->first_file + i);
        set_tile *m = &b->tiles[i];
        output_range r = {0};
        if (item < f->count)
            plan_get_item(x->r.plan, exec_own_item(x, f->first + item), &r);
        r.begin += step * s->step_nbytes;
        r.begin = r.begin < r.end ? r.begin : r.end;
        r.end = r.end - r.begin > s->step_nbytes ? r.begin + s->step_nbytes : r.end;
        m->whole = r;
        m->range = (output_range){.file = r.file, .end = r.begin};
        m->bytes = b->own_tile + i * (s->step_nbytes + TILE_SET_GUARD_NBYTES) + FILE_DIRECT_ALIGN;
    }
}

fsdpck_status tile_set_run(worker *w, const tile_sets *t, const tile_set *s, uint64_t job,
                           fsdpck_error *err)
{
    set_step b = {.worker = w, .own_tile = w->tile};
    fsdpck_status st = FSDPCK_OK;
    b.tiles = calloc(s->file_count, sizeof *b.tiles);
    if (b.tiles == NULL)
        return error_set_nomem(err, s->file_count * sizeof *b.tiles);
    begin_step(&b, t, s, job - s->first_job);
    while (st == FSDPCK_OK && next_ranges(&b))
        st = run_ranges(&b, err);
    w->tile = b.own_tile;
    w->gather.base = w->tile;
    w->gather.grouped = false;
    w->gather.count = 0; /* after a failure */
    w->gather.dims_count = 0;
    free(b.tiles);
    return st;
}
