/* The engine that runs items on the threads of one process: one item is one output range, done tile
 * by tile. */
#include <string.h>

#include "exec/exec_state.h"

bool exec_chunk_is_streamed(const struct exec *x, uint64_t target_chunk)
{
    const uint32_t tensor = catalogue_chunk(&x->r.target->cat, target_chunk)->tensor;
    return (x->tensor_flags[plan_source_tensor(x->r.plan, tensor)] & TENSOR_STREAMED) != 0;
}

/* Literals at once, chunks through gather; what nobody fills is zeros. */
static fsdpck_status fill_tile(worker *w, const output_range *range, bool *wanted,
                               fsdpck_error *err)
{
    struct exec *x = w->x;
    range_walk walk;
    range_part part;
    uint64_t filled = range->begin;
    bool streamed = false;
    bool other = false;
    w->gather.touched = false;
    range_walk_begin(&walk, x->r.plan, range);
    while (range_walk_next(&walk, &part)) {
        uint8_t *at = w->tile + (part.begin - range->begin);
        memset(w->tile + (filled - range->begin), 0, part.begin - filled);
        filled = part.end;
        if (part.kind != PART_CHUNK) {
            other = true;
            if (part.kind == PART_LITERAL)
                memcpy(at, part.literal, part.end - part.begin);
            else
                memset(at, 0, part.end - part.begin); /* see sum_range */
            continue;
        }
        if (exec_chunk_is_streamed(x, part.chunk)) {
            streamed = true;
            memset(at, 0, part.end - part.begin);
        } else {
            other = true;
        }
        RETURN_IF(gather_part(w, &part, range->begin, err));
    }
    memset(w->tile + (filled - range->begin), 0, range->end - filled);
    RETURN_IF(gather_flush(w, err));
    /* Where streams alone bring bytes, they write them themselves later. */
    *wanted = other || w->gather.touched || !streamed;
    return FSDPCK_OK;
}

/* Checksums of what is in the tile now, and the late bytes that depend on them. `item_begin`: from
 * there on this worker has done the file. */
static void sum_range(worker *w, const output_range *range, uint64_t item_begin)
{
    struct exec *x = w->x;
    const output_range done = {range->file, item_begin, range->end};
    range_walk walk;
    range_part part;
    if (!x->r.target->want_crc)
        return;
    range_walk_begin(&walk, x->r.plan, range);
    while (range_walk_next(&walk, &part))
        if (part.kind == PART_CHUNK && !exec_chunk_is_streamed(x, part.chunk))
            crc_parts_put(x, &part, w->tile + (part.begin - range->begin));
    if (x->late_count == 0)
        return;
    range_walk_begin(&walk, x->r.plan, range);
    while (range_walk_next(&walk, &part))
        if (part.kind == PART_LATE)
            late_fill(w, &part, &done, w->tile + (part.begin - range->begin));
}

static bool write_is_direct(const struct exec *x, const file *f, uint32_t index)
{
    const uint64_t nbytes = catalogue_file(&x->r.target->cat, index)->nbytes;
    if (x->r.direct == EXEC_DIRECT_OFF || f->direct_fd < 0)
        return false;
    return x->r.direct == EXEC_DIRECT_ON || nbytes >= EXEC_DIRECT_NBYTES;
}

static fsdpck_status write_tile(worker *w, const output_range *range, fsdpck_error *err)
{
    struct exec *x = w->x;
    file *f = output_file(x->out, range->file);
    const uint64_t nbytes = range->end - range->begin;
    w->sums.bytes_written += nbytes;
    if (!write_is_direct(x, f, range->file))
        return file_write_at(f, range->begin, w->tile, nbytes, err);
    const uint64_t padding = (FILE_DIRECT_ALIGN - nbytes % FILE_DIRECT_ALIGN) % FILE_DIRECT_ALIGN;
    memset(w->tile + nbytes, 0, padding);
    w->sums.direct_bytes += nbytes;
    return file_write_direct(f, range->begin, w->tile, nbytes + padding, err);
}

/* How much of an item is filled at a time: small steps stay in the caches, but where sources are
 * strided a larger tile makes longer reads. */
static uint64_t fill_nbytes(const struct exec *x, const output_range *item)
{
    const catalogue *to = &x->r.target->cat;
    range_walk walk;
    range_part part;
    range_walk_begin(&walk, x->r.plan, item);
    while (range_walk_next(&walk, &part)) {
        if (part.kind != PART_CHUNK)
            continue;
        const uint32_t tensor = catalogue_chunk(to, part.chunk)->tensor;
        if (x->tensor_flags[plan_source_tensor(x->r.plan, tensor)] & TENSOR_WIDE)
            return x->tile_nbytes;
    }
    return x->step_nbytes;
}

static fsdpck_status run_item(void *ctx, unsigned worker_index, uint64_t item, fsdpck_error *err)
{
    struct exec *x = ctx;
    worker *w = x->workers[worker_index];
    output_range whole;
    plan_get_item(x->r.plan, item, &whole);
    const uint64_t nbytes = fill_nbytes(x, &whole);
    output_range range = whole;
    for (; range.begin < whole.end; range.begin = range.end) {
        bool wanted;
        range.end = whole.end - range.begin < nbytes ? whole.end : range.begin + nbytes;
        RETURN_IF(cancel_check(x->r.cancel, err));
        RETURN_IF(fill_tile(w, &range, &wanted, err));
        sum_range(w, &range, whole.begin);
        if (wanted)
            RETURN_IF(write_tile(w, &range, err));
        progress_add(x->r.progress, range.end - range.begin);
    }
    return FSDPCK_OK;
}

fsdpck_status engine_threads_run(struct exec *x, fsdpck_error *err)
{
    return pool_run(x->nworkers, plan_item_count(x->r.plan), run_item, x, x->r.cancel, err);
}
