/* Fills a whole tile, by the engine or by the worker's thread. */
#include <string.h>

#include "exec/exec_internal.h"

/* Constant bytes directly, chunks by gather; all other bytes are zeros. */
static fsdpck_status fill_by_threads(worker *w, const output_range *range, bool *wanted,
                                     fsdpck_error *err)
{
    struct exec *x = w->x;
    tile_walk walk;
    const range_part *part;
    uint8_t *tile = w->tile + w->at;
    uint64_t filled = range->begin;
    bool streamed = false;
    bool other = false;
    w->gather.touched = false;
    tile_parts_begin(&walk, &w->parts);
    while ((part = tile_parts_next(&walk)) != NULL) {
        uint8_t *at = tile + (part->begin - range->begin);
        memset(tile + (filled - range->begin), 0, part->begin - filled);
        filled = part->end;
        if (part->kind != RANGE_PART_CHUNK) {
            other = true;
            if (part->kind == RANGE_PART_CONSTANT)
                memcpy(at, part->constant, part->end - part->begin);
            else
                memset(at, 0, part->end - part->begin); /* see checksum_range */
            continue;
        }
        if (exec_chunk_is_streamed(x, part->chunk)) {
            streamed = true;
            memset(at, 0, part->end - part->begin);
        } else {
            other = true;
        }
        RETURN_IF(gather_elements(
            w, part->chunk, part->first_elem, part->end_elem,
            (int64_t)part->chunk_begin - (int64_t)range->begin + (int64_t)w->at, err));
    }
    memset(tile + (filled - range->begin), 0, range->end - filled);
    RETURN_IF(gather_flush(w, err));
    /* If all bytes come from streams, these are written later. */
    *wanted = other || w->gather.touched || !streamed;
    return FSDPCK_OK;
}

void fill_non_chunks(worker *w, const output_range *range)
{
    tile_walk walk;
    const range_part *part;
    uint8_t *tile = w->tile + w->at;
    uint64_t filled = range->begin;
    tile_parts_begin(&walk, &w->parts);
    while ((part = tile_parts_next(&walk)) != NULL) {
        uint8_t *at = tile + (part->begin - range->begin);
        memset(tile + (filled - range->begin), 0, part->begin - filled);
        filled = part->end;
        if (part->kind == RANGE_PART_CONSTANT)
            memcpy(at, part->constant, part->end - part->begin);
        else if (part->kind != RANGE_PART_CHUNK)
            memset(at, 0, part->end - part->begin);
    }
    memset(tile + (filled - range->begin), 0, range->end - filled);
}

fsdpck_status fill_tile(worker *w, const output_range *range, bool *wanted, fsdpck_error *err)
{
    bool done;
    tile_parts_find(&w->parts, w->x->r.plan, range);
    RETURN_IF(w->x->engine->fill_tile(w, range, &done, err));
    if (!done)
        return fill_by_threads(w, range, wanted, err);
    *wanted = true;
    fill_non_chunks(w, range);
    return FSDPCK_OK;
}
