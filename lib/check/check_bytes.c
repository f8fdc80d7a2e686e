/* One pass over the bytes: CRC-32 of records, CRC-64 of files and the numbers of each window while it
 * is in the cache. */
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/crc.h"
#include "check/check_internal.h"

typedef struct byte_work {
    check *c;
    vec jobs;          /* check_job */
    uint32_t *crcs;    /* by extent: what its parts add up to */
    uint8_t **pieces;  /* by worker */
    chunk_scan *scans; /* by worker; NULL below level numeric */
} byte_work;

static bool is_out_of_time(check *c)
{
    struct timespec now;
    if (c->r->deadline_ns == 0)
        return false;
    if (__atomic_load_n(&c->stopped, __ATOMIC_RELAXED))
        return true;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec < c->r->deadline_ns)
        return false;
    __atomic_store_n(&c->stopped, true, __ATOMIC_RELAXED);
    return true;
}

static void count_read(check *c, const extent *e, uint64_t nbytes)
{
    if (e->chunk != NO_CHUNK)
        __atomic_fetch_add(&c->result->bytes_read, nbytes, __ATOMIC_RELAXED);
    progress_add(c->r->progress, nbytes);
}

/* Not read completely: its checksum and its file's are unknown. */
static void mark_unread(check *c, extent *e)
{
    __atomic_store_n(&e->unread, true, __ATOMIC_RELAXED);
    if (c->r->files != NULL)
        __atomic_store_n(&c->r->files[e->file].done, false, __ATOMIC_RELAXED);
}

/* A part of an extent as it is read. */
typedef struct part {
    uint64_t begin, end;
    uint32_t crc;
    uint64_t raw;   /* CRC-64 of the bytes from `fresh` on */
    uint64_t fresh; /* bytes before it belong to earlier extents */
    bool wants_raw;
} part;

static fsdpck_status check_window(byte_work *w, const extent *e, part *p, chunk_scan *scan,
                                  uint64_t at, uint8_t *bytes, uint64_t nbytes, fsdpck_error *err)
{
    for (uint64_t i = 0; i < nbytes; i += WINDOW_NBYTES) {
        const uint64_t some = nbytes - i < WINDOW_NBYTES ? nbytes - i : WINDOW_NBYTES;
        if (e->has_crc)
            p->crc = crc32_update(p->crc, bytes + i, some);
        if (p->wants_raw && at + i + some > p->fresh) {
            const uint64_t skip = p->fresh > at + i ? p->fresh - (at + i) : 0;
            p->raw = crc64_raw(p->raw, bytes + i + skip, some - skip);
        }
        if (scan != NULL && e->chunk != NO_CHUNK)
            RETURN_IF(chunk_scan_window(scan, e, at + i, bytes + i, some, err));
    }
    count_read(w->c, e, nbytes);
    return FSDPCK_OK;
}

static void store_crcs(byte_work *w, uint32_t index, const part *p)
{
    const extent *e = VEC_AT(&w->c->extents, const extent, index);
    if (e->has_crc)
        (void)__atomic_fetch_xor(&w->crcs[index], crc32_join(p->crc, 0, e->nbytes - p->end),
                                 __ATOMIC_RELAXED);
    if (p->wants_raw && p->end > p->fresh) {
        check_file *f = &w->c->r->files[e->file];
        const uint64_t behind = f->nbytes - (e->offset_bytes + p->end);
        (void)__atomic_fetch_xor(&f->crc64, crc64_shift(p->raw, behind), __ATOMIC_RELAXED);
    }
}

static fsdpck_status read_part(byte_work *w, uint32_t index, uint64_t begin, uint64_t end,
                               unsigned worker, fsdpck_error *err)
{
    check *c = w->c;
    extent *e = VEC_AT(&c->extents, extent, index);
    const source *src = c->r->source;
    uint8_t *piece = w->pieces[worker];
    chunk_scan *scan = w->scans == NULL ? NULL : &w->scans[worker];
    part p = {.begin = begin,
              .end = end,
              .fresh = begin > e->checked_nbytes ? begin : e->checked_nbytes,
              .wants_raw = c->r->files != NULL && c->r->files[e->file].nbytes > 0};
    for (uint64_t at = begin; at < end;) {
        const uint64_t n = end - at < READ_NBYTES ? end - at : READ_NBYTES;
        RETURN_IF(cancel_check(c->r->cancel, err));
        RETURN_IF(src->read_at(src->ctx, e->file, e->offset_bytes + at, piece, n, err));
        RETURN_IF(check_window(w, e, &p, scan, at, piece, n, err));
        at += n;
    }
    store_crcs(w, index, &p);
    return scan == NULL ? FSDPCK_OK : chunk_scan_flush(scan, err);
}

static fsdpck_status read_decoded(byte_work *w, extent *e, source_stream *s, unsigned worker,
                                  fsdpck_error *err)
{
    check *c = w->c;
    const source *src = c->r->source;
    chunk_scan *scan = w->scans == NULL ? NULL : &w->scans[worker];
    part p = {0};
    uint64_t skip = e->at_bytes, at = 0;
    while (at < e->nbytes) {
        const uint64_t wanted = skip > 0 ? skip : e->nbytes - at;
        const uint64_t n = wanted < READ_NBYTES ? wanted : READ_NBYTES;
        if (is_out_of_time(c)) {
            mark_unread(c, e);
            return FSDPCK_OK;
        }
        RETURN_IF(cancel_check(c->r->cancel, err));
        RETURN_IF(src->stream_read(s, w->pieces[worker], n, err));
        if (skip > 0) {
            skip -= n;
            continue;
        }
        RETURN_IF(check_window(w, e, &p, scan, at, w->pieces[worker], n, err));
        at += n;
    }
    RETURN_IF(src->stream_finish(s, err));
    return scan == NULL ? FSDPCK_OK : chunk_scan_flush(scan, err);
}

/* Decodes to the end, where sizes and checksums are checked. */
static fsdpck_status read_stream(byte_work *w, extent *e, unsigned worker, fsdpck_error *err)
{
    const source *src = w->c->r->source;
    source_stream *s;
    RETURN_IF(src->stream_open(src->ctx, e->chunk, &s, err));
    const fsdpck_status st = read_decoded(w, e, s, worker, err);
    src->stream_close(s);
    return st;
}

static fsdpck_status run_job(void *ctx, unsigned worker, uint64_t number, fsdpck_error *err)
{
    byte_work *w = ctx;
    check *c = w->c;
    const check_job *j = VEC_AT(&w->jobs, const check_job, number);
    for (uint32_t i = j->first; i < j->end; i++) {
        extent *e = VEC_AT(&c->extents, extent, i);
        fsdpck_error what = FSDPCK_ERROR_INIT;
        if (is_out_of_time(c)) {
            mark_unread(c, e);
            continue;
        }
        const uint64_t end = j->end_bytes < e->nbytes ? j->end_bytes : e->nbytes;
        const fsdpck_status st = e->stream ? read_stream(w, e, worker, &what)
                                           : read_part(w, i, j->begin_bytes, end, worker, &what);
        if (st == FSDPCK_OK)
            continue;
        mark_unread(c, e);
        if (w->scans != NULL)
            w->scans[worker].chunk_extent = CAT_NONE;
        if (e->chunk == NO_CHUNK)
            check_add_path(c, e->file, &what);
        else
            check_add_context(c, e->chunk, &what);
        if (!check_is_finding(st)) {
            if (err != NULL)
                *err = what;
            return st;
        }
        findings_report(c->found, &what);
    }
    return FSDPCK_OK;
}

static void check_crcs(byte_work *w)
{
    check *c = w->c;
    for (uint32_t i = 0; i < c->extents.count; i++) {
        const extent *e = VEC_AT(&c->extents, const extent, i);
        fsdpck_error what;
        if (e->unread && e->chunk != NO_CHUNK)
            c->result->skipped_records++;
        if (e->unread || !(e->stream ? e->stream_checksum == STREAM_CHECKSUMMED : e->has_crc))
            continue;
        c->result->bytes_summed += e->nbytes;
        if (e->stream || w->crcs[i] == e->crc32)
            continue;
        FAIL_WITH(&what, BADINPUT, ZIP_CRC, ("bytes of the tensor changed after they were saved"),
                  (offset, e->offset_bytes),
                  (expected, "CRC-32 %08x over %" PRIu64 " bytes", e->crc32, e->nbytes),
                  (found, "%08x", w->crcs[i]));
        check_add_context(c, e->chunk, &what);
        findings_report(c->found, &what);
    }
}

/* A tensor may lie in many extents, and not side by side. */
static fsdpck_status count_unsummed(check *c, fsdpck_error *err)
{
    const uint64_t count = catalogue_tensor_count(c->r->cat);
    unsigned char *counted = budget_alloc(c->r->metadata, count, err);
    if (counted == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < c->extents.count; i++) {
        const extent *e = VEC_AT(&c->extents, const extent, i);
        if (e->chunk == NO_CHUNK ||
            (e->stream ? e->stream_checksum != STREAM_NO_CHECKSUM : e->has_crc))
            continue;
        const uint32_t tensor = check_tensor_of(c, e);
        c->result->unverified_nbytes += e->nbytes;
        c->result->unsummed_tensors += counted[tensor] == 0;
        counted[tensor] = 1;
    }
    budget_free(c->r->metadata, counted, count);
    return FSDPCK_OK;
}

static fsdpck_status begin(byte_work *w, unsigned workers, fsdpck_error *err)
{
    check *c = w->c;
    RETURN_IF(check_jobs_add_gaps(c, err));
    RETURN_IF(check_jobs_list(c, &w->jobs, err));
    w->crcs = calloc(c->extents.count + 2, sizeof *w->crcs);
    w->pieces = calloc(workers, sizeof *w->pieces);
    if (w->crcs == NULL || w->pieces == NULL)
        return error_set_nomem(err, c->extents.count * sizeof *w->crcs);
    for (unsigned i = 0; i < workers; i++) {
        w->pieces[i] = malloc(READ_NBYTES);
        if (w->pieces[i] == NULL)
            return error_set_nomem(err, READ_NBYTES);
    }
    for (size_t i = 0; c->r->files != NULL && i < catalogue_file_count(c->r->cat); i++)
        c->r->files[i].crc64 = c->r->peers != NULL && c->r->peers->rank > 0
                                   ? 0 /* counts once */
                                   : crc64_zeros(c->r->files[i].nbytes);
    if (c->r->level < CHECK_NUMERIC)
        return FSDPCK_OK;
    w->scans = calloc(workers, sizeof *w->scans);
    if (w->scans == NULL)
        return error_set_nomem(err, workers * sizeof *w->scans);
    for (unsigned i = 0; i < workers; i++)
        RETURN_IF(chunk_scan_init(&w->scans[i], c, err));
    return chunk_scans_begin(c, err);
}

static uint64_t job_nbytes(const byte_work *w)
{
    uint64_t nbytes = 0;
    for (size_t i = 0; i < w->jobs.count; i++) {
        const check_job *j = VEC_AT(&w->jobs, const check_job, i);
        for (uint32_t k = j->first; k < j->end; k++) {
            const extent *e = VEC_AT(&w->c->extents, const extent, k);
            nbytes += (j->end_bytes < e->nbytes ? j->end_bytes : e->nbytes) - j->begin_bytes;
        }
    }
    return nbytes;
}

static void release(byte_work *w, unsigned workers)
{
    for (unsigned i = 0; i < workers; i++) {
        if (w->pieces != NULL)
            free(w->pieces[i]);
        if (w->scans != NULL)
            chunk_scan_release(&w->scans[i]);
    }
    free(w->pieces);
    free(w->scans);
    free(w->crcs);
    vec_release(&w->jobs);
    chunk_scans_end(w->c);
}

/* As many as may have a stream open. */
static unsigned worker_count(const check *c)
{
    const source *src = c->r->source;
    const unsigned workers = c->r->nthreads > 0 ? c->r->nthreads : 1;
    uint64_t most = 0;
    if (src->stream_nbytes == NULL || c->r->memory_nbytes == 0)
        return workers;
    for (size_t i = 0; i < c->extents.count; i++) {
        const extent *e = VEC_AT(&c->extents, const extent, i);
        const uint64_t nbytes = e->stream ? src->stream_nbytes(src->ctx, e->chunk) : 0;
        most = nbytes > most ? nbytes : most;
    }
    const uint64_t fit = most == 0 ? workers : c->r->memory_nbytes / most;
    return fit == 0 ? 1 : fit < workers ? (unsigned)fit : workers;
}

/* Runs this process's jobs, then merges the results of all. */
static fsdpck_status read_own_jobs(byte_work *w, unsigned workers, const found_mark *before,
                                   fsdpck_error *err)
{
    check *c = w->c;
    RETURN_IF(peers_assign_jobs(c, &w->jobs, err));
    const fsdpck_status st = pool_run(workers, w->jobs.count, run_job, w, c->r->cancel, err);
    return peers_merge_bytes(c, st, before, w->crcs, err);
}

fsdpck_status check_bytes(check *c, fsdpck_error *err)
{
    byte_work w = {.c = c, .jobs = VEC_OF(check_job, c->r->metadata)};
    const unsigned workers = worker_count(c);
    found_mark before;
    fsdpck_status st = peers_agree(c, begin(&w, workers, err), err);
    progress_phase(c->r->progress, "reading", job_nbytes(&w));
    peers_mark_findings(c, &before);
    if (st == FSDPCK_OK)
        st = read_own_jobs(&w, workers, &before, err);
    if (st == FSDPCK_OK) {
        check_crcs(&w);
        st = count_unsummed(c, err);
    }
    if (st == FSDPCK_OK && w.scans != NULL) {
        st = chunk_scans_total(c, err);
        if (st == FSDPCK_OK)
            check_numbers(c);
        st = peers_agree(c, st, err);
    }
    release(&w, workers);
    return st;
}
