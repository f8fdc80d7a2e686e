/* A tile with all that is in it: by the worker's thread, or by its lane of a GPU. */
#include <string.h>

#include "base/crc.h"
#include "exec/exec_state.h"
#include "exec/gpu/exchange.h"

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

bool fill_suits_gpu(const struct exec *x, const output_range *range)
{
    range_walk walk;
    range_part part;
    bool any = false;
    range_walk_begin(&walk, x->r.plan, range);
    while (range_walk_next(&walk, &part)) {
        if (part.kind == PART_CHUNK && exec_chunk_is_streamed(x, part.chunk))
            return false;
        any = any || part.kind == PART_CHUNK;
    }
    return any;
}

static fsdpck_status gather_tile(worker *w, const void *ctx, fsdpck_error *err)
{
    if (w->lane_on && w->travel.inbox != NULL)
        return exchange_gather(w, ctx, err);
    return gather_range(w, ctx, err);
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

static uint64_t sum_range_bytes(worker *w, const void *ctx)
{
    const output_range *range = ctx;
    fill_rest(w, range);
    return crc64_update(0, w->tile + w->at, range->end - range->begin);
}

/* ---- by the GPU ---- */

static fsdpck_status fill_once(worker *w, const gpu_fill *f, bool *intact, fsdpck_error *err)
{
    uint64_t lost = 0;
    RETURN_IF(gpu_lane_begin(w->lane, err));
    w->travel.sent = 0;
    w->lane_on = true;
    fsdpck_status st = f->gather(w, f->ctx, err);
    w->lane_on = false;
    w->gather.count = 0; /* after a failure */
    w->gather.dims_count = 0;
    if (st == FSDPCK_OK)
        st = gpu_lane_finish(
            w->lane, f->stays && !gpu_lane_had_new_kinds(w->lane) ? NULL : w->memory,
            (uint64_t)(f->begin - w->memory), (uint64_t)(f->end - w->memory), &lost, intact, err);
    if (st == FSDPCK_OK && *intact)
        w->sums.cast_overflows += lost;
    return st;
}

/* The first tile with boxes of a new kind, once more by the thread: a kernel, a driver or a device that
 * is wrong is wrong at once. */
static fsdpck_status check_by_threads(worker *w, const gpu_fill *f, fsdpck_error *err)
{
    const uint64_t before = f->sum(w, f->ctx);
    const struct exec_sums sums = w->sums;
    w->travel.sent = 0;
    RETURN_IF(f->gather(w, f->ctx, err));
    w->sums = sums;
    if (f->sum(w, f->ctx) == before)
        return FSDPCK_OK;
    error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE,
              "the GPU gave other bytes than the processor");
    error_next(err, "leave --engine away, and report it with the names of the GPU and its driver");
    return FSDPCK_DEVICE;
}

fsdpck_status fill_by_gpu(worker *w, const gpu_fill *f, fsdpck_error *err)
{
    bool intact;
    RETURN_IF(fill_once(w, f, &intact, err));
    w->travel.inbox = NULL; /* again: all of it is read */
    if (!intact)
        RETURN_IF(fill_once(w, f, &intact, err));
    if (!intact) {
        error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE,
                  "copies to or from the GPU changed bytes, twice");
        error_next(err, "leave --engine away: the GPU or its slot is failing");
        return FSDPCK_DEVICE;
    }
    w->sums.gpu_tiles++;
    return gpu_lane_had_new_kinds(w->lane) ? check_by_threads(w, f, err) : FSDPCK_OK;
}

fsdpck_status fill_try_gpu(worker *w, const gpu_fill *f, bool *done, fsdpck_error *err)
{
    fsdpck_error local;
    *done = false;
    if (w->lane == NULL)
        return FSDPCK_OK;
    const uint64_t overflows = w->sums.cast_overflows;
    fsdpck_error_init(&local);
    const fsdpck_status st = fill_by_gpu(w, f, &local);
    *done = st == FSDPCK_OK;
    if (st != FSDPCK_DEVICE || w->x->r.gpu_required) {
        if (st != FSDPCK_OK && err != NULL)
            *err = local;
        return st;
    }
    w->sums.cast_overflows = overflows;
    worker_drop_gpu(w, &local);
    return FSDPCK_OK;
}

fsdpck_status fill_tile(worker *w, const output_range *range, bool *wanted, fsdpck_error *err)
{
    const gpu_fill f = {gather_tile,
                        sum_range_bytes,
                        range,
                        w->tile + w->at,
                        w->tile + w->at + (range->end - range->begin),
                        false};
    bool done = false;
    if (w->lane != NULL && fill_suits_gpu(w->x, range))
        RETURN_IF(fill_try_gpu(w, &f, &done, err));
    if (!done)
        return fill_by_threads(w, range, wanted, err);
    *wanted = true;
    fill_rest(w, range);
    return FSDPCK_OK;
}
