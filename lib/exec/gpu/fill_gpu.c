/* Fills a tile by the worker's GPU part. */
#include "exec/gpu/fill_gpu.h"
#include "base/crc.h"
#include "exec/gpu/exchange.h"

static fsdpck_status reserve(worker *w, uint64_t nbytes, const uint8_t *dst, unsigned boxes,
                             unsigned dims, uint8_t **buffer, fsdpck_error *err)
{
    /* Copies have the alignment of their destination, converted elements their own. */
    return gpu_worker_reserve(w->of_engine->gpu_worker, nbytes,
                              dst == NULL ? 0 : gpu_span_at(w, dst), boxes, dims, buffer, err);
}

static void place_box(worker *w, const element_ops *c, const strided *s, uint8_t *dst,
                      const uint8_t *src)
{
    gpu_worker_put(w->of_engine->gpu_worker, c, s, gpu_span_at(w, dst), src);
}

static void place_run(worker *w, uint8_t *dst, const uint8_t *src, uint64_t nbytes)
{
    gpu_worker_put_run(w->of_engine->gpu_worker, gpu_span_at(w, dst), src, nbytes);
}

static const engine_place place_by_lane = {.reserve = reserve, .box = place_box, .run = place_run};

bool fill_can_use_gpu(const struct exec *x, const output_range *range)
{
    range_walk walk;
    range_part part;
    bool any = false;
    range_walk_begin(&walk, x->r.plan, range);
    while (range_walk_next(&walk, &part)) {
        if (part.kind == RANGE_PART_CHUNK &&
            (exec_chunk_is_streamed(x, part.chunk) || exec_chunk_is_for_threads(x, part.chunk)))
            return false;
        any = any || part.kind == RANGE_PART_CHUNK;
    }
    return any;
}

/* Fills a tile: parts that are plain by threads, unless other ranks send some of it. */
typedef struct tile_fill {
    const output_range *range;
    bool all;            /* by the device */
    bool any_plain;      /* else */
    uint64_t begin, end; /* of the device's parts, in the file; equal: it has none */
} tile_fill;

static fsdpck_status gather_parts(worker *w, const output_range *range, bool plain,
                                  fsdpck_error *err)
{
    tile_walk walk;
    const range_part *part;
    tile_parts_begin(&walk, &w->parts);
    while ((part = tile_parts_next(&walk)) != NULL)
        if (part->kind == RANGE_PART_CHUNK &&
            exec_elements_are_plain(w->x, part->chunk, part->first_elem, part->end_elem) == plain)
            RETURN_IF(gather_elements(
                w, part->chunk, part->first_elem, part->end_elem,
                (int64_t)part->chunk_begin - (int64_t)range->begin + (int64_t)w->at, err));
    return gather_flush(w, err);
}

static void find_parts(worker *w, tile_fill *f)
{
    tile_walk walk;
    const range_part *part;
    f->begin = f->end = f->range->end;
    if (f->all) {
        f->begin = f->range->begin;
        return;
    }
    tile_parts_begin(&walk, &w->parts);
    while ((part = tile_parts_next(&walk)) != NULL) {
        if (part->kind != RANGE_PART_CHUNK)
            continue;
        if (exec_elements_are_plain(w->x, part->chunk, part->first_elem, part->end_elem)) {
            f->any_plain = true;
            continue;
        }
        if (f->begin == f->range->end)
            f->begin = part->begin;
        f->end = part->end;
    }
}

static fsdpck_status gather_tile(worker *w, const void *ctx, fsdpck_error *err)
{
    const tile_fill *f = ctx;
    if (w->of_engine->tile_exchange.recv_buffer != NULL)
        return exchange_gather(w, f->range, err);
    return f->all ? gather_range(w, f->range, err) : gather_parts(w, f->range, false, err);
}

/* CRC of the device's part of a tile; those of long parts are kept for its digests. */
static uint64_t crc_of_tile(worker *w, const void *ctx)
{
    const tile_fill *f = ctx;
    const uint8_t *tile = w->tile + w->at;
    const uint64_t origin = f->range->begin;
    tile_parts *parts = &w->parts;
    tile_walk walk;
    const range_part *part;
    uint64_t crc = 0, done = f->begin;
    parts->crc_count = 0;
    tile_parts_begin(&walk, parts);
    while ((part = tile_parts_next(&walk)) != NULL && parts->crc_count < TILE_CRCS) {
        const uint64_t nbytes = part->end - part->begin;
        if (part->kind != RANGE_PART_CHUNK || nbytes < CHECKSUM_ALONE_NBYTES ||
            (!f->all &&
             exec_elements_are_plain(w->x, part->chunk, part->first_elem, part->end_elem)))
            continue;
        const uint64_t raw = crc64_raw(0, tile + (part->begin - origin), nbytes);
        parts->crcs[parts->crc_count++] = (tile_crc){part->begin, raw};
        crc = crc64_raw(crc, tile + (done - origin), part->begin - done);
        crc = crc64_shift(crc, nbytes) ^ raw;
        done = part->end;
    }
    return crc64_raw(crc, tile + (done - origin), f->end - done);
}

static uint64_t sum_range_bytes(worker *w, const void *ctx)
{
    const output_range *range = ((const tile_fill *)ctx)->range;
    fill_non_chunks(w, range);
    return crc64_update(0, w->tile + w->at, range->end - range->begin);
}

typedef struct out_crc {
    worker *w;
    const engine_fill *f;
} out_crc;

static uint64_t crc_of_out(void *ctx)
{
    const out_crc *c = ctx;
    return c->f->crc(c->w, c->f->ctx);
}

static fsdpck_status fill_once(worker *w, const engine_fill *f, bool *intact, fsdpck_error *err)
{
    uint64_t lost = 0;
    RETURN_IF(gpu_worker_begin(w->of_engine->gpu_worker, err));
    w->place = &place_by_lane;
    fsdpck_status st = f->gather(w, f->ctx, err);
    w->place = &place_by_threads;
    w->gather.count = 0; /* after a failure */
    w->gather.dims_count = 0;
    const bool stays = f->stays && !gpu_worker_had_new_kinds(w->of_engine->gpu_worker);
    const gpu_worker_out out = {.span = stays ? NULL : w->memory,
                                .from = (uint64_t)(f->begin - w->memory),
                                .to = (uint64_t)(f->end - w->memory),
                                .sums = w->of_engine->tile_exchange.sums,
                                .sum_count = w->of_engine->tile_exchange.sum_count,
                                .crc = f->crc != NULL ? crc_of_out : NULL,
                                .ctx = &(out_crc){w, f}};
    if (st == FSDPCK_OK)
        st = gpu_worker_finish(w->of_engine->gpu_worker, &out, &lost, intact, err);
    if (st == FSDPCK_OK && *intact)
        w->stats.cast_overflows += lost;
    return st;
}

/* Fills the first tile with boxes of a new kind again by threads: a faulty kernel, driver or device
 * shows at once. */
static fsdpck_status check_by_threads(worker *w, const engine_fill *f, fsdpck_error *err)
{
    const uint64_t before = f->sum(w, f->ctx);
    const struct exec_stats stats = w->stats;
    RETURN_IF(f->gather(w, f->ctx, err));
    w->stats = stats;
    if (f->sum(w, f->ctx) == before)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, DEVICE, NONE, ("GPU and CPU results differ"),
        (next, "omit --engine, and report a bug with the names of the GPU and its driver"));
}

fsdpck_status fill_by_gpu(worker *w, const engine_fill *f, fsdpck_error *err)
{
    bool intact;
    RETURN_IF(fill_once(w, f, &intact, err));
    w->of_engine->tile_exchange.recv_buffer = NULL; /* again: all of it is read */
    if (!intact)
        RETURN_IF(fill_once(w, f, &intact, err));
    if (!intact)
        return FAIL_WITH(err, DEVICE, NONE, ("copies to or from the GPU were corrupted twice"),
                         (next, "omit --engine: the GPU or its slot is failing"));
    w->stats.gpu_tiles++;
    return gpu_worker_had_new_kinds(w->of_engine->gpu_worker) ? check_by_threads(w, f, err)
                                                              : FSDPCK_OK;
}

fsdpck_status fill_try_gpu(worker *w, const engine_fill *f, bool *done, fsdpck_error *err)
{
    fsdpck_error local = FSDPCK_ERROR_INIT;
    *done = false;
    if (w->of_engine->gpu_worker == NULL)
        return FSDPCK_OK;
    const uint64_t overflows = w->stats.cast_overflows;
    const fsdpck_status st = fill_by_gpu(w, f, &local);
    *done = st == FSDPCK_OK;
    if (st != FSDPCK_DEVICE || w->x->r.gpu_required) {
        if (st != FSDPCK_OK && err != NULL)
            *err = local;
        return st;
    }
    w->stats.cast_overflows = overflows;
    worker_drop_gpu(w, &local);
    return FSDPCK_OK;
}

fsdpck_status fill_tile_by_gpu(worker *w, const output_range *range, bool *done, fsdpck_error *err)
{
    tile_fill tile = {.range = range, .all = w->of_engine->tile_exchange.recv_buffer != NULL};
    *done = false;
    if (w->of_engine->gpu_worker == NULL || !fill_can_use_gpu(w->x, range))
        return FSDPCK_OK;
    find_parts(w, &tile);
    if (tile.begin == tile.end)
        return FSDPCK_OK;
    const engine_fill f = {gather_tile,
                           sum_range_bytes,
                           crc_of_tile,
                           &tile,
                           w->tile + w->at + (tile.begin - range->begin),
                           w->tile + w->at + (tile.end - range->begin),
                           false};
    RETURN_IF(fill_try_gpu(w, &f, done, err));
    if (!*done)
        w->parts.crc_count = 0;
    return *done && tile.any_plain ? gather_parts(w, range, true, err) : FSDPCK_OK;
}
