/* Items, ranges and tiles of this rank, and the end of a tile: checksums, and writing it. */
#include "exec/exec_internal.h"

uint64_t exec_own_item_count(const struct exec *x)
{
    return x->shared ? x->own_items.count : plan_item_count(x->r.plan);
}

uint64_t exec_own_item(const struct exec *x, uint64_t job)
{
    return x->shared ? *VEC_AT(&x->own_items, const uint64_t, job) : job;
}

bool exec_next_range(const struct exec *x, const output_range *item, output_range *r)
{
    range_walk walk;
    range_part part;
    r->begin = r->end;
    r->end = item->end;
    if (x->column_groups.count == 0)
        return r->begin < r->end;
    range_walk_begin(&walk, x->r.plan, r);
    while (range_walk_next(&walk, &part)) {
        if (part.kind != RANGE_PART_CHUNK || !exec_chunk_is_grouped(x, part.chunk))
            continue;
        if (part.begin > r->begin) {
            r->end = part.begin;
            return true;
        }
        r->begin = part.end;
    }
    return r->begin < r->end;
}

static uint64_t align_down(uint64_t at)
{
    return at - at % FILE_DIRECT_ALIGN;
}

bool exec_next_tile(const output_range *whole, uint64_t nbytes, output_range *tile)
{
    tile->begin = tile->end;
    const uint64_t next = align_down(tile->begin + nbytes);
    tile->end = next > tile->begin && next < whole->end ? next : whole->end;
    return tile->begin < whole->end;
}

/* Checksums of the filled tile, and the deferred bytes that depend on them. `item_begin`: this
 * worker has completed the file from there on. */
static void checksum_range(worker *w, const output_range *range, uint64_t item_begin)
{
    struct exec *x = w->x;
    const output_range done = {range->file, item_begin, range->end};
    tile_walk walk;
    const range_part *part;
    if (!exec_checksums_wanted(x))
        return;
    exec_checksums_add_chunks(x, &w->parts, range, w->tile + w->at);
    tile_parts_begin(&walk, &w->parts);
    while (x->deferred_count > 0 && (part = tile_parts_next(&walk)) != NULL)
        if (part->kind == RANGE_PART_DEFERRED)
            exec_deferred_fill(w, part, &done, w->tile + w->at + (part->begin - range->begin));
    exec_checksums_add_other(x, &w->parts, range, w->tile + w->at);
}

fsdpck_status exec_finish_tile(worker *w, const output_range *range, uint64_t item_begin,
                               bool wanted, uint64_t overflows, fsdpck_error *err)
{
    checksum_range(w, range, item_begin);
    if (wanted) {
        const uint64_t crc = resume_crc(w, range, w->tile + w->at);
        RETURN_IF(write_range(w, range, w->tile + w->at, err));
        resume_record(w, range, crc, overflows);
    }
    progress_add(w->x->r.progress, range->end - range->begin);
    return FSDPCK_OK;
}

fsdpck_status exec_finish_kept(worker *w, const output_range *range, uint64_t item_begin,
                               const kept_range *kept, fsdpck_error *err)
{
    checksum_range(w, range, item_begin);
    RETURN_IF(resume_write_others(w, range, w->tile + w->at, kept->has_others, err));
    progress_keep(w->x->r.progress, range->end - range->begin);
    resume_count(w, range, kept);
    return FSDPCK_OK;
}
