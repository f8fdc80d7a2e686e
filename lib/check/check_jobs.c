/* Which ranges of the files are read, and in which order: all records or a sample, and the gaps if
 * the file itself has a checksum. */
#include <stdlib.h>

#include "check/check_internal.h"

/* ---- bytes outside of records ---- */

static fsdpck_status add_gap(check *c, uint32_t file, uint64_t begin, uint64_t end,
                             fsdpck_error *err)
{
    if (begin >= end)
        return FSDPCK_OK;
    return vec_add(
        &c->extents,
        &(extent){.offset_bytes = begin, .nbytes = end - begin, .chunk = NO_CHUNK, .file = file},
        err);
}

/* Of one file, whose extents are [first, end) in order: gaps, and how much of each was had before. */
static fsdpck_status add_gaps_of(check *c, uint32_t file, size_t first, size_t end,
                                 fsdpck_error *err)
{
    check_file *f = &c->r->files[file];
    uint64_t had = 0;
    for (size_t i = first; i < end; i++) {
        extent *e = VEC_AT(&c->extents, extent, i);
        if (e->stream)
            continue; /* its bytes come decoded */
        const uint64_t begin = e->offset_bytes;
        if (begin > f->nbytes || e->nbytes > f->nbytes - begin) {
            f->nbytes = 0; /* not to be read to its end, which will be a finding */
            return FSDPCK_OK;
        }
        e->checked_nbytes = had <= begin ? 0 : had - begin < e->nbytes ? had - begin : e->nbytes;
        RETURN_IF(add_gap(c, file, had, begin, err));
        e = VEC_AT(&c->extents, extent, i);
        had = begin + e->nbytes > had ? begin + e->nbytes : had;
    }
    f->done = true;
    return add_gap(c, file, had, f->nbytes, err);
}

fsdpck_status check_jobs_add_gaps(check *c, fsdpck_error *err)
{
    const size_t count = c->extents.count;
    size_t at = 0;
    if (c->r->files == NULL)
        return FSDPCK_OK;
    for (uint32_t file = 0; file < catalogue_file_count(c->r->cat); file++) {
        size_t first = at;
        while (at < count && VEC_AT(&c->extents, const extent, at)->file < file)
            first = ++at;
        while (at < count && VEC_AT(&c->extents, const extent, at)->file == file)
            at++;
        if (c->r->files[file].nbytes > 0)
            RETURN_IF(add_gaps_of(c, file, first, at, err));
    }
    if (c->extents.count > count)
        qsort(c->extents.items, c->extents.count, sizeof(extent), check_compare_extents);
    return FSDPCK_OK;
}

/* ---- jobs ---- */

static bool is_sample(const check_request *r)
{
    return r->sample_begin != 0 || r->sample_end != 0;
}

/* Numbers times the golden ratio are spread evenly over their fractions, and so are those of any
 * run of numbers: every range of fractions samples all regions of the files equally. */
static bool is_sampled(const check_request *r, uint64_t number)
{
    const uint64_t fraction = number * UINT64_C(0x9E3779B97F4A7C15);
    return fraction >= r->sample_begin && fraction <= r->sample_end;
}

static fsdpck_status add_job(vec *jobs, uint32_t extent_index, uint64_t begin, uint64_t end,
                             fsdpck_error *err)
{
    return vec_add(jobs, &(check_job){extent_index, extent_index + 1, begin, end}, err);
}

/* A record with a checksum is read as a whole or not at all: a part of it could not be compared. */
static fsdpck_status list_sample(check *c, vec *jobs, fsdpck_error *err)
{
    uint64_t number = 0;
    for (uint32_t i = 0; i < c->extents.count; i++) {
        extent *e = VEC_AT(&c->extents, extent, i);
        const uint64_t step = e->stream || e->has_crc ? e->nbytes : READ_NBYTES;
        for (uint64_t at = 0; at < e->nbytes;) {
            const uint64_t end = e->nbytes - at < step ? e->nbytes : at + step;
            const bool taken = is_sampled(c->r, number++);
            e->unread = e->unread || !taken;
            while (taken && at < end) {
                const bool cut = !e->stream && end - at > JOB_NBYTES;
                RETURN_IF(add_job(jobs, i, at, cut ? at + JOB_NBYTES : end, err));
                at += cut ? JOB_NBYTES : end - at;
            }
            at = end;
        }
    }
    return FSDPCK_OK;
}

fsdpck_status check_jobs_list(check *c, vec *jobs, fsdpck_error *err)
{
    uint64_t gathered = JOB_NBYTES;
    if (is_sample(c->r))
        return list_sample(c, jobs, err);
    for (uint32_t i = 0; i < c->extents.count; i++) {
        const extent *e = VEC_AT(&c->extents, const extent, i);
        if (gathered + e->nbytes <= JOB_NBYTES && !e->stream) {
            VEC_AT(jobs, check_job, jobs->count - 1)->end = i + 1;
            gathered += e->nbytes;
            continue;
        }
        uint64_t at = 0;
        do {
            const bool cut = !e->stream && e->nbytes - at > JOB_NBYTES;
            RETURN_IF(add_job(jobs, i, at, cut ? at + JOB_NBYTES : UINT64_MAX, err));
            at += cut ? JOB_NBYTES : e->nbytes - at;
        } while (at < e->nbytes);
        gathered = e->stream || e->nbytes > JOB_NBYTES ? JOB_NBYTES : e->nbytes;
    }
    return FSDPCK_OK;
}
