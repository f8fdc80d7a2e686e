/* Deferred bytes: filled with the tile if the checksum is known by then, else after all items. */

#include "exec/exec_internal.h"

/* Deferred bytes per job. */
#define DEFERRED_BATCH 1024u
/* Neighbours written at once. */
#define DEFERRED_RUN_NBYTES ((uint64_t)64 << 10)

static const target_deferred *deferred_at(const struct exec *x, uint64_t index)
{
    return VEC_AT(&x->r.target->lates, target_deferred, index);
}

fsdpck_status exec_deferred_begin(struct exec *x, fsdpck_error *err)
{
    x->deferred_count = x->r.target->lates.count;
    x->deferred_done = budget_alloc(x->r.metadata, x->deferred_count, err);
    return x->deferred_done != NULL || x->deferred_count == 0 ? FSDPCK_OK : FSDPCK_LIMIT;
}

void exec_deferred_fill(worker *w, const range_part *part, const output_range *done, uint8_t *dst)
{
    struct exec *x = w->x;
    const target *t = x->r.target;
    const target_deferred *deferred = deferred_at(x, part->deferred);
    const cat_chunk *k = catalogue_chunk(&t->cat, deferred->chunk);
    if (k->file != done->file || k->offset_bytes < done->begin ||
        k->offset_bytes + k->nbytes > done->end || part->end - part->begin != deferred->nbytes ||
        exec_chunk_is_streamed(x, deferred->chunk) || exec_chunk_is_grouped(x, deferred->chunk))
        return;
    const uint64_t chunk = plan_first_alias(x->r.plan, deferred->chunk);
    t->make_deferred(t, part->deferred, __atomic_load_n(&t->chunk_crc[chunk], __ATOMIC_RELAXED),
                     dst);
    x->deferred_done[part->deferred] = 1;
}

/* Writes the deferred bytes of a batch that no tile has filled. */
static fsdpck_status write_batch(void *ctx, unsigned worker_index, uint64_t job, fsdpck_error *err)
{
    struct exec *x = ctx;
    const target *t = x->r.target;
    worker *w = x->workers[worker_index];
    const uint64_t end = (job + 1) * DEFERRED_BATCH < x->deferred_count ? (job + 1) * DEFERRED_BATCH
                                                                        : x->deferred_count;
    uint64_t i = job * DEFERRED_BATCH;
    while (i < end) {
        const target_deferred *first = deferred_at(x, i);
        uint64_t nbytes = 0;
        if (x->deferred_done[i]) {
            i++;
            continue;
        }
        if (first->nbytes > x->tile_nbytes)
            return FAIL(err, INTERNAL, NONE, "deferred write is longer than a tile");
        for (; i < end && !x->deferred_done[i]; i++) {
            const target_deferred *deferred = deferred_at(x, i);
            if (deferred->file != first->file ||
                deferred->offset_bytes != first->offset_bytes + nbytes ||
                (nbytes > 0 && nbytes + deferred->nbytes > DEFERRED_RUN_NBYTES))
                break;
            t->make_deferred(t, i, t->chunk_crc[deferred->chunk], w->tile + nbytes);
            nbytes += deferred->nbytes;
        }
        if (exec_file_is_own(x, first->file))
            w->stats.bytes_written += nbytes;
        target_add_file_crc(t, first->file, first->offset_bytes, w->tile, nbytes);
        if (exec_file_is_own(x, first->file))
            RETURN_IF(
                output_write_at(x->out, first->file, first->offset_bytes, w->tile, nbytes, err));
    }
    return FSDPCK_OK;
}

fsdpck_status exec_deferred_finish(struct exec *x, fsdpck_error *err)
{
    return pool_run(x->nworkers, (x->deferred_count + DEFERRED_BATCH - 1) / DEFERRED_BATCH,
                    write_batch, x, x->r.cancel, err);
}
