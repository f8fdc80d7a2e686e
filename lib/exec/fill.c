/* A tile with all that is in it: by the worker's thread, or by its lane of a GPU. */
#include <string.h>

#include "base/crc.h"
#include "exec/exec_state.h"

/* Literals at once, chunks through gather; what nobody fills is zeros. */
static fsdpck_status fill_by_threads(worker *w, const output_range *range, bool *wanted,
                                     fsdpck_error *err)
{
    struct exec *x = w->x;
    range_walk walk;
    range_part part;
    uint8_t *tile = w->tile + w->at;
    uint64_t filled = range->begin;
    bool streamed = false;
    bool other = false;
    w->gather.touched = false;
    range_walk_begin(&walk, x->r.plan, range);
    while (range_walk_next(&walk, &part)) {
        uint8_t *at = tile + (part.begin - range->begin);
        memset(tile + (filled - range->begin), 0, part.begin - filled);
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
        RETURN_IF(gather_elements(
            w, part.chunk, part.first_elem, part.end_elem,
            (int64_t)part.chunk_begin - (int64_t)range->begin + (int64_t)w->at, err));
    }
    memset(tile + (filled - range->begin), 0, range->end - filled);
    RETURN_IF(gather_flush(w, err));
    /* Where streams alone bring bytes, they write them themselves later. */
    *wanted = other || w->gather.touched || !streamed;
    return FSDPCK_OK;
}

/* Whether a lane can fill a range: streams write into what is zeros yet. */
static bool suits_gpu(const worker *w, const output_range *range)
{
    const struct exec *x = w->x;
    range_walk walk;
    range_part part;
    bool any = false;
    if (w->lane == NULL)
        return false;
    range_walk_begin(&walk, x->r.plan, range);
    while (range_walk_next(&walk, &part)) {
        if (part.kind == PART_CHUNK && exec_chunk_is_streamed(x, part.chunk))
            return false;
        any = any || part.kind == PART_CHUNK;
    }
    return any;
}

static fsdpck_status gather_range(worker *w, const output_range *range, fsdpck_error *err)
{
    range_walk walk;
    range_part part;
    range_walk_begin(&walk, w->x->r.plan, range);
    while (range_walk_next(&walk, &part))
        if (part.kind == PART_CHUNK)
            RETURN_IF(gather_elements(
                w, part.chunk, part.first_elem, part.end_elem,
                (int64_t)part.chunk_begin - (int64_t)range->begin + (int64_t)w->at, err));
    return gather_flush(w, err);
}

/* What no device brings: literals, and zeros between all parts and for late bytes. */
static void fill_rest(worker *w, const output_range *range)
{
    range_walk walk;
    range_part part;
    uint8_t *tile = w->tile + w->at;
    uint64_t filled = range->begin;
    range_walk_begin(&walk, w->x->r.plan, range);
    while (range_walk_next(&walk, &part)) {
        uint8_t *at = tile + (part.begin - range->begin);
        memset(tile + (filled - range->begin), 0, part.begin - filled);
        filled = part.end;
        if (part.kind == PART_LITERAL)
            memcpy(at, part.literal, part.end - part.begin);
        else if (part.kind != PART_CHUNK)
            memset(at, 0, part.end - part.begin);
    }
    memset(tile + (filled - range->begin), 0, range->end - filled);
}

static fsdpck_status fill_once(worker *w, const output_range *range, bool *intact,
                               fsdpck_error *err)
{
    uint64_t lost = 0;
    RETURN_IF(gpu_lane_begin(w->lane, err));
    w->lane_on = true;
    fsdpck_status st = gather_range(w, range, err);
    w->lane_on = false;
    w->gather.count = 0; /* after a failure */
    w->gather.dims_count = 0;
    if (st == FSDPCK_OK)
        st = gpu_lane_finish(w->lane, w->memory, TILE_MARGIN + w->at,
                             TILE_MARGIN + w->at + (range->end - range->begin), &lost, intact, err);
    if (st == FSDPCK_OK && *intact)
        w->sums.cast_overflows += lost;
    return st;
}

/* The first tile with boxes of a new kind, once more by the thread: a kernel, a driver or a device that
 * is wrong is wrong at once. */
static fsdpck_status check_by_threads(worker *w, const output_range *range, fsdpck_error *err)
{
    const uint64_t nbytes = range->end - range->begin;
    const uint64_t before = crc64_update(0, w->tile + w->at, nbytes);
    const struct exec_sums sums = w->sums;
    bool wanted;
    RETURN_IF(fill_by_threads(w, range, &wanted, err));
    w->sums = sums;
    if (crc64_update(0, w->tile + w->at, nbytes) == before)
        return FSDPCK_OK;
    error_set(err, FSDPCK_DEVICE, "", "the GPU gave other bytes than the processor");
    error_next(err, "leave --engine away, and report it with the names of the GPU and its driver");
    return FSDPCK_DEVICE;
}

static fsdpck_status fill_by_gpu(worker *w, const output_range *range, fsdpck_error *err)
{
    bool intact;
    RETURN_IF(fill_once(w, range, &intact, err));
    if (!intact)
        RETURN_IF(fill_once(w, range, &intact, err));
    if (!intact) {
        error_set(err, FSDPCK_DEVICE, "", "copies to or from the GPU changed bytes, twice");
        error_next(err, "leave --engine away: the GPU or its slot is failing");
        return FSDPCK_DEVICE;
    }
    fill_rest(w, range);
    w->sums.gpu_tiles++;
    return gpu_lane_had_new_kinds(w->lane) ? check_by_threads(w, range, err) : FSDPCK_OK;
}

fsdpck_status fill_tile(worker *w, const output_range *range, bool *wanted, fsdpck_error *err)
{
    fsdpck_error local;
    if (!suits_gpu(w, range))
        return fill_by_threads(w, range, wanted, err);
    *wanted = true;
    fsdpck_error_init(&local);
    const fsdpck_status st = fill_by_gpu(w, range, &local);
    if (st != FSDPCK_DEVICE || w->x->r.gpu_required) {
        if (st != FSDPCK_OK && err != NULL)
            *err = local;
        return st;
    }
    worker_drop_gpu(w, &local);
    return fill_by_threads(w, range, wanted, err);
}
