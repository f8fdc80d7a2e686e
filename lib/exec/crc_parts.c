/* CRC-32 of target chunks, summed step by step by whoever has the tile.
 *
 * A chunk and a step share at most one part. Along the output, going from one part to the next
 * steps to the next chunk, to the next step, or both, so chunk number + step number names a part:
 * one flat array without a map.
 */
#include <stdlib.h>

#include "base/crc.h"
#include "exec/exec_state.h"

static uint64_t steps_an_item(const struct exec *x)
{
    return plan_tile_nbytes(x->r.plan) / x->step_nbytes;
}

uint64_t exec_step_number(const struct exec *x, uint32_t file_index, uint64_t offset_bytes)
{
    return plan_item_of(x->r.plan, file_index, offset_bytes) * steps_an_item(x) +
           offset_bytes % plan_tile_nbytes(x->r.plan) / x->step_nbytes;
}

fsdpck_status crc_parts_begin(struct exec *x, fsdpck_error *err)
{
    target *t = x->r.target;
    const uint64_t nchunks = catalogue_chunk_count(&t->cat);
    if (!t->want_crc)
        return FSDPCK_OK;
    if (t->chunk_crc == NULL)
        t->chunk_crc = calloc(nchunks > 0 ? nchunks : 1, sizeof *t->chunk_crc);
    if (t->chunk_crc == NULL)
        return error_set_nomem(err, nchunks * sizeof *t->chunk_crc);
    x->crc_part_count = plan_order_count(x->r.plan) + plan_item_count(x->r.plan) * steps_an_item(x);
    x->crc_parts = budget_alloc(x->r.metadata, x->crc_part_count * sizeof *x->crc_parts, err);
    return x->crc_parts == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
}

void crc_parts_put(struct exec *x, const range_part *part, uint64_t step, const uint8_t *bytes)
{
    x->crc_parts[part->order + step] = crc32_update(0, bytes, part->end - part->begin);
}

static uint32_t join_chunk(const struct exec *x, const cat_chunk *k, uint64_t order)
{
    const uint64_t end = k->offset_bytes + k->nbytes;
    uint32_t crc = 0;
    uint64_t step = exec_step_number(x, k->file, k->offset_bytes);
    for (uint64_t at = k->offset_bytes; at < end; step++) {
        uint64_t next = at - at % plan_tile_nbytes(x->r.plan);
        next += (at - next) / x->step_nbytes * x->step_nbytes + x->step_nbytes;
        const uint64_t part_end = next < end ? next : end;
        const uint32_t part = x->crc_parts[order + step];
        crc = at == k->offset_bytes ? part : crc32_join(crc, part, part_end - at);
        at = part_end;
    }
    return crc;
}

fsdpck_status crc_parts_join(struct exec *x, fsdpck_error *err)
{
    const catalogue *to = &x->r.target->cat;
    const cat_chunk *last = NULL;
    uint32_t last_crc = 0;
    if (!x->r.target->want_crc)
        return FSDPCK_OK;
    for (uint64_t i = 0; i < plan_order_count(x->r.plan); i++) {
        const uint64_t chunk = plan_ordered_chunk(x->r.plan, i);
        const cat_chunk *k = catalogue_chunk(to, chunk);
        const bool alias = last != NULL && last->file == k->file &&
                           last->offset_bytes == k->offset_bytes && last->nbytes == k->nbytes;
        if (!alias)
            last_crc = join_chunk(x, k, i);
        x->r.target->chunk_crc[chunk] = last_crc;
        last = k;
    }
    return cancel_check(x->r.cancel, err);
}
