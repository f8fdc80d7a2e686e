/* Ranges that an earlier run wrote (io/journal.h). They are read from the output instead of the source, and compared
 * with their checksums, before any checksum of the output is computed from them. */
#include "base/bytes.h"
#include "base/crc.h"
#include "exec/exec_internal.h"

void exec_use_journal(struct exec *x, const journal *old, journal_writer *w)
{
    x->finished = old;
    x->stats.recorded_nbytes = old != NULL ? old->nbytes : 0;
    x->journal = w;
}

bool exec_is_computed(const struct exec *x)
{
    return x->r.source->read_box != NULL;
}

static uint64_t hash_u64(uint64_t h, uint64_t v)
{
    uint8_t bytes[8];
    store_le64(bytes, v);
    return crc64_update(h, bytes, sizeof bytes);
}

uint64_t exec_hash(const struct exec *x)
{
    const catalogue *from = plan_source(x->r.plan);
    uint64_t strides[NDIM_MAX], h = 0;
    for (uint64_t i = 0; i < x->chunk_extent_count; i++) {
        const chunk_extent *e = &x->chunk_extents[i];
        if ((e->flags & EXTENT_RESOLVED) == 0)
            continue;
        h = hash_u64(hash_u64(h, i), e->offset_bytes);
        h = hash_u64(h, (uint64_t)e->file << 32 | e->flags);
        const unsigned ndim = catalogue_tensor(from, catalogue_chunk(from, i)->tensor)->ndim;
        exec_chunk_strides(x, i, strides);
        for (unsigned d = 0; d < ndim; d++)
            h = hash_u64(h, strides[d]);
    }
    return h;
}

fsdpck_status resume_read(worker *w, const output_range *range, uint8_t *bytes, bool *is_kept,
                          kept_range *kept, fsdpck_error *err)
{
    const struct exec *x = w->x;
    uint64_t at = range->begin;
    *is_kept = false;
    *kept = (kept_range){0};
    if (x->finished == NULL || x->out == NULL ||
        !journal_covers(x->finished, range->file, range->begin, range->end))
        return FSDPCK_OK;
    RETURN_IF(output_read_at(x->out, range->file, at, bytes, range->end - at, err));
    while (at < range->end) {
        const journal_range *r = journal_find(x->finished, range->file, at, range->end);
        const uint64_t crc = crc64_update(0, bytes + (at - range->begin), r->nbytes);
        if (crc != r->crc64)
            return FSDPCK_OK;
        kept->crc64 = crc64_join(kept->crc64, crc, r->nbytes);
        kept->overflows += r->count;
        kept->ranges++;
        at += r->nbytes;
    }
    *is_kept = true;
    return FSDPCK_OK;
}

void resume_count(worker *w, const output_range *range, const kept_range *kept)
{
    w->stats.kept_ranges += kept->ranges;
    w->stats.kept_nbytes += range->end - range->begin;
    w->stats.cast_overflows += kept->overflows;
}

void resume_record(worker *w, const output_range *range, const uint8_t *bytes, uint64_t overflows)
{
    const uint64_t nbytes = range->end - range->begin;
    /* A number that does not fit is not recorded: the range is then written again. */
    if (w->x->journal == NULL || nbytes == 0 || overflows > UINT32_MAX)
        return;
    journal_add(w->x->journal, &(journal_range){.file = range->file,
                                                .offset_bytes = range->begin,
                                                .nbytes = nbytes,
                                                .crc64 = crc64_update(0, bytes, nbytes),
                                                .count = (uint32_t)overflows});
}
