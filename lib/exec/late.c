/* Late bytes: with the tile where the checksum is known by then, else after all items. */
#include <string.h>

#include "exec/exec_state.h"

/* Late bytes handed out as one job. */
#define LATE_BATCH 1024u
/* Neighbours written at once. */
#define LATE_RUN_NBYTES ((uint64_t)64 << 10)

static const target_late *late_at(const struct exec *x, uint64_t index)
{
    return VEC_AT(&x->r.target->lates, target_late, index);
}

fsdpck_status late_begin(struct exec *x, fsdpck_error *err)
{
    x->late_count = x->r.target->lates.count;
    x->late_done = budget_alloc(x->r.metadata, x->late_count, err);
    return x->late_done != NULL || x->late_count == 0 ? FSDPCK_OK : FSDPCK_LIMIT;
}

void late_fill(worker *w, const range_part *part, const output_range *done, uint8_t *dst)
{
    struct exec *x = w->x;
    const target *t = x->r.target;
    const target_late *late = late_at(x, part->late);
    const cat_chunk *k = catalogue_chunk(&t->cat, late->chunk);
    if (k->file != done->file || k->offset_bytes < done->begin ||
        k->offset_bytes + k->nbytes > done->end || part->end - part->begin != late->nbytes ||
        exec_chunk_is_streamed(x, late->chunk) || exec_chunk_is_bundled(x, late->chunk))
        return;
    const uint64_t chunk = plan_first_alias(x->r.plan, late->chunk);
    t->make_late(t, part->late, __atomic_load_n(&t->chunk_crc[chunk], __ATOMIC_RELAXED), dst);
    x->late_done[part->late] = 1;
}

/* Those of a batch that no tile brought. */
static fsdpck_status write_batch(void *ctx, unsigned worker_index, uint64_t job, fsdpck_error *err)
{
    struct exec *x = ctx;
    const target *t = x->r.target;
    worker *w = x->workers[worker_index];
    const uint64_t end =
        (job + 1) * LATE_BATCH < x->late_count ? (job + 1) * LATE_BATCH : x->late_count;
    uint64_t i = job * LATE_BATCH;
    while (i < end) {
        const target_late *first = late_at(x, i);
        uint64_t nbytes = 0;
        if (x->late_done[i]) {
            i++;
            continue;
        }
        if (first->nbytes > x->tile_nbytes)
            return error_set(err, FSDPCK_INTERNAL, FSDPCK_FINDING_NONE,
                             "late bytes are longer than a tile");
        for (; i < end && !x->late_done[i]; i++) {
            const target_late *late = late_at(x, i);
            if (late->file != first->file || late->offset_bytes != first->offset_bytes + nbytes ||
                (nbytes > 0 && nbytes + late->nbytes > LATE_RUN_NBYTES))
                break;
            t->make_late(t, i, t->chunk_crc[late->chunk], w->tile + nbytes);
            nbytes += late->nbytes;
        }
        if (exec_file_is_own(x, first->file))
            w->sums.bytes_written += nbytes;
        target_add_file_crc(t, first->file, first->offset_bytes, w->tile, nbytes);
        if (exec_file_is_own(x, first->file))
            RETURN_IF(
                output_write_at(x->out, first->file, first->offset_bytes, w->tile, nbytes, err));
    }
    return FSDPCK_OK;
}

fsdpck_status late_finish(struct exec *x, fsdpck_error *err)
{
    return pool_run(x->nworkers, (x->late_count + LATE_BATCH - 1) / LATE_BATCH, write_batch, x,
                    x->r.cancel, err);
}
