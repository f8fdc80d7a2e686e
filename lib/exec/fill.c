/* Fills a whole tile, by the engine or by the worker's thread. */
#include <string.h>

#include "exec/exec_internal.h"

bool fill_non_chunks(worker *w, const output_range *range)
{
    tile_walk walk;
    const range_part *part;
    uint8_t *tile = w->tile + w->at;
    uint64_t filled = range->begin;
    bool streamed = false;
    bool other = false;
    tile_parts_begin(&walk, &w->parts);
    while ((part = tile_parts_next(&walk)) != NULL) {
        uint8_t *at = tile + (part->begin - range->begin);
        const bool chunk = part->kind == RANGE_PART_CHUNK;
        const bool stream = chunk && exec_chunk_is_streamed(w->x, part->chunk);
        memset(tile + (filled - range->begin), 0, part->begin - filled);
        filled = part->end;
        streamed = streamed || stream;
        other = other || !stream;
        if (part->kind == RANGE_PART_CONSTANT)
            memcpy(at, part->constant, part->end - part->begin);
        else if (stream || !chunk)
            memset(at, 0, part->end - part->begin); /* see checksum_range */
    }
    memset(tile + (filled - range->begin), 0, range->end - filled);
    return streamed && !other;
}

fsdpck_status fill_chunks(worker *w, const worker *of, const output_range *range, fsdpck_error *err)
{
    tile_walk walk;
    const range_part *part;
    w->gather.base = of->tile;
    tile_parts_begin(&walk, &of->parts);
    while ((part = tile_parts_next(&walk)) != NULL)
        if (part->kind == RANGE_PART_CHUNK)
            RETURN_IF(gather_elements(
                w, part->chunk, part->first_elem, part->end_elem,
                (int64_t)part->chunk_begin - (int64_t)range->begin + (int64_t)of->at, err));
    return gather_flush(w, err);
}

fsdpck_status fill_tile(worker *w, const output_range *range, bool *wanted, fsdpck_error *err)
{
    bool done;
    tile_parts_find(&w->parts, w->x->r.plan, range);
    RETURN_IF(w->x->engine->fill_tile(w, range, &done, err));
    /* If all bytes come from streams, these are written later. */
    const bool later = fill_non_chunks(w, range);
    w->gather.touched = false;
    *wanted = true;
    if (done)
        return FSDPCK_OK;
    RETURN_IF(fill_chunks(w, w, range, err));
    *wanted = w->gather.touched || !later;
    return FSDPCK_OK;
}
