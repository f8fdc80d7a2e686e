/* Ranges that an earlier run wrote (io/journal.h). They are read from the output instead of the source, and compared
 * with their checksums, before any checksum of the output is computed from them.
 *
 * Bytes that the end of a run writes count as zeros: deferred ones, and those of no part, such as the directory of a
 * zip file. They may have been written after the range was recorded, and are made again. */
#include <string.h>

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

uint64_t exec_hash(const struct exec *x)
{
    const catalogue *from = plan_source(x->r.plan);
    uint64_t strides[NDIM_MAX], h = 0;
    for (uint64_t i = 0; i < x->chunk_extent_count; i++) {
        const chunk_extent *e = &x->chunk_extents[i];
        if ((e->flags & EXTENT_RESOLVED) == 0)
            continue;
        h = crc64_add_u64(crc64_add_u64(h, i), e->offset_bytes);
        h = crc64_add_u64(h, (uint64_t)e->file << 32 | e->flags);
        const unsigned ndim = catalogue_tensor(from, catalogue_chunk(from, i)->tensor)->ndim;
        exec_chunk_strides(x, i, strides);
        for (unsigned d = 0; d < ndim; d++)
            h = crc64_add_u64(h, strides[d]);
    }
    return h;
}

/* Runs of bytes that are written with their tile: chunks and constants. */
typedef struct run_walk {
    tile_walk parts;
    const range_part *next;
} run_walk;

static const range_part *next_written(tile_walk *parts)
{
    const range_part *part;
    do
        part = tile_parts_next(parts);
    while (part != NULL && part->kind == RANGE_PART_DEFERRED);
    return part;
}

static void runs_begin(run_walk *runs, const worker *w)
{
    tile_parts_begin(&runs->parts, &w->parts);
    runs->next = next_written(&runs->parts);
}

static bool runs_next(run_walk *runs, uint64_t *begin, uint64_t *end)
{
    if (runs->next == NULL)
        return false;
    *begin = runs->next->begin;
    *end = runs->next->end;
    while ((runs->next = next_written(&runs->parts)) != NULL && runs->next->begin <= *end)
        *end = runs->next->end > *end ? runs->next->end : *end;
    return true;
}

static bool is_zero(const uint8_t *bytes, uint64_t nbytes)
{
    return nbytes == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, nbytes - 1) == 0);
}

/* Whether any of them was not zero. */
static bool zero_others(const worker *w, const output_range *range, uint8_t *bytes)
{
    bool had = false;
    uint64_t at = range->begin, begin, end;
    run_walk runs;
    runs_begin(&runs, w);
    while (runs_next(&runs, &begin, &end)) {
        had = had || !is_zero(bytes + (at - range->begin), begin - at);
        memset(bytes + (at - range->begin), 0, begin - at);
        at = end;
    }
    had = had || !is_zero(bytes + (at - range->begin), range->end - at);
    memset(bytes + (at - range->begin), 0, range->end - at);
    return had;
}

/* Raw CRC-64 of bytes with this one and more zeros. */
static uint64_t add_zeros(uint64_t raw, uint64_t nbytes)
{
    static const uint8_t zeros[1024];
    return nbytes <= sizeof zeros ? crc64_raw(raw, zeros, nbytes) : crc64_shift(raw, nbytes);
}

/* As after zero_others. Long parts have their CRCs from the checksums of the output. */
static uint64_t crc_of_runs(const worker *w, const output_range *range, const uint8_t *bytes)
{
    const tile_parts *parts = &w->parts;
    uint64_t raw = 0, at = range->begin; /* raw: of the bytes before `at` */
    unsigned crcs = 0;
    tile_walk walk;
    const range_part *part;
    tile_parts_begin(&walk, parts);
    while ((part = next_written(&walk)) != NULL) {
        const uint64_t begin = part->begin > at ? part->begin : at;
        const bool known = part->end - part->begin >= CHECKSUM_ALONE_NBYTES &&
                           crcs < parts->crc_count && parts->crcs[crcs].begin == part->begin;
        const uint64_t crc = known ? parts->crcs[crcs++].raw : 0;
        if (part->end <= at)
            continue;
        raw = add_zeros(raw, begin - at);
        raw = known && begin == part->begin
                  ? crc64_shift(raw, part->end - begin) ^ crc
                  : crc64_raw(raw, bytes + (begin - range->begin), part->end - begin);
        at = part->end;
    }
    return add_zeros(raw, range->end - at) ^ crc64_zeros(range->end - range->begin);
}

/* Bytes of no run, if they are not zeros already. */
static fsdpck_status write_others(worker *w, const output_range *range, uint64_t begin,
                                  uint64_t end, const uint8_t *bytes, bool had, fsdpck_error *err)
{
    bytes += begin - range->begin;
    if (begin == end || (!had && is_zero(bytes, end - begin)))
        return FSDPCK_OK;
    w->stats.bytes_written += end - begin;
    return output_write_at(w->x->out, range->file, begin, bytes, end - begin, err);
}

fsdpck_status resume_write_others(worker *w, const output_range *range, const uint8_t *bytes,
                                  bool had, fsdpck_error *err)
{
    uint64_t at = range->begin, begin, end;
    run_walk runs;
    runs_begin(&runs, w);
    while (runs_next(&runs, &begin, &end)) {
        RETURN_IF(write_others(w, range, at, begin, bytes, had, err));
        at = end;
    }
    return write_others(w, range, at, range->end, bytes, had, err);
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
    tile_parts_find(&w->parts, x->r.plan, range);
    kept->has_others = zero_others(w, range, bytes);
    while (at < range->end) {
        const journal_range *r = journal_find(x->finished, range->file, at, range->end);
        const uint64_t crc = crc64_update(0, bytes + (at - range->begin), r->nbytes);
        if (crc != r->crc64)
            return FSDPCK_OK;
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

uint64_t resume_crc(const worker *w, const output_range *range, const uint8_t *bytes)
{
    return w->x->journal == NULL ? 0 : crc_of_runs(w, range, bytes);
}

void resume_record(worker *w, const output_range *range, uint64_t crc, uint64_t overflows)
{
    const uint64_t nbytes = range->end - range->begin;
    /* A number that does not fit is not recorded: the range is then written again. */
    if (w->x->journal == NULL || nbytes == 0 || overflows > UINT32_MAX)
        return;
    journal_add(w->x->journal, &(journal_range){.file = range->file,
                                                .offset_bytes = range->begin,
                                                .nbytes = nbytes,
                                                .crc64 = crc,
                                                .count = (uint32_t)overflows});
}
