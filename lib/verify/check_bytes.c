/* One pass over the bytes: CRC-32 and the numeric scan of each piece while it is in the cache. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "verify/check_parts.h"

/* Read at once, and summed and scanned at once: the latter stays in the cache nearest to the core. */
#define PIECE_NBYTES ((uint64_t)1 << 20)
#define LOOK_NBYTES  ((uint64_t)128 << 10)
/* One job: a large record is shared by several workers. */
#define JOB_NBYTES ((uint64_t)16 << 20)

/* A part of an extent, or a run of small whole ones. */
typedef struct job {
    uint32_t first, end;             /* extents */
    uint64_t begin_bytes, end_bytes; /* of the one extent, where it is cut */
} job;

typedef struct byte_work {
    check *c;
    vec jobs;         /* job */
    uint32_t *crcs;   /* by extent: what its parts add up to */
    uint8_t **pieces; /* by worker */
} byte_work;

static uint32_t tensor_of(const check *c, const extent *e)
{
    return catalogue_chunk(c->r->cat, e->chunk)->tensor;
}

static void reverse_bytes(uint8_t *bytes, uint64_t nbytes, unsigned unit)
{
    for (uint64_t at = 0; at + unit <= nbytes; at += unit)
        for (unsigned i = 0; i < unit / 2; i++) {
            const uint8_t one = bytes[at + i];
            bytes[at + i] = bytes[at + unit - 1 - i];
            bytes[at + unit - 1 - i] = one;
        }
}

/* Begins at a multiple of the element size from the extent's begin. */
static void scan_piece(check *c, const extent *e, uint8_t *bytes, uint64_t nbytes, scan_sums *sums)
{
    const dtype d = (dtype)catalogue_tensor(c->r->cat, tensor_of(c, e))->dtype;
    const dtype_info *info = dtype_get(d);
    if (c->sums == NULL || e->mixed || !scan_supported(d))
        return;
    if (e->swap)
        reverse_bytes(bytes, nbytes, info->swap_nbytes);
    scan_elements(d, bytes, nbytes / info->itemsize_bytes, sums);
}

static void keep_sums(check *c, const extent *e, const scan_sums *sums)
{
    if (sums->nelems == 0)
        return;
    pthread_mutex_lock(&c->lock);
    scan_add(&c->sums[tensor_of(c, e)], sums);
    pthread_mutex_unlock(&c->lock);
}

static fsdpck_status read_part(byte_work *w, uint32_t index, uint64_t begin, uint64_t end,
                               uint8_t *piece, fsdpck_error *err)
{
    check *c = w->c;
    const extent *e = VEC_AT(&c->extents, const extent, index);
    const source *src = c->r->source;
    uint32_t crc = 0;
    scan_sums sums = {0};
    for (uint64_t at = begin; at < end;) {
        const uint64_t n = end - at < PIECE_NBYTES ? end - at : PIECE_NBYTES;
        RETURN_IF(cancel_check(c->r->cancel, err));
        RETURN_IF(src->read_at(src->ctx, e->file, e->offset_bytes + at, piece, n, err));
        for (uint64_t i = 0; i < n; i += LOOK_NBYTES) {
            const uint64_t some = n - i < LOOK_NBYTES ? n - i : LOOK_NBYTES;
            if (e->has_crc)
                crc = crc32_update(crc, piece + i, some);
            scan_piece(c, e, piece + i, some, &sums);
        }
        progress_add(c->r->progress, n);
        at += n;
    }
    if (e->has_crc)
        (void)__atomic_fetch_xor(&w->crcs[index], crc32_join(crc, 0, e->nbytes - end),
                                 __ATOMIC_RELAXED);
    keep_sums(c, e, &sums);
    return FSDPCK_OK;
}

/* Decoded to the end, where sizes and checksums are looked at. */
static fsdpck_status read_stream(byte_work *w, const extent *e, uint8_t *piece, fsdpck_error *err)
{
    check *c = w->c;
    const source *src = c->r->source;
    source_stream *s;
    scan_sums sums = {0};
    RETURN_IF(src->stream_open(src->ctx, e->chunk, &s, err));
    fsdpck_status st = FSDPCK_OK;
    uint64_t skip = e->skip_nbytes, left = e->nbytes;
    while (st == FSDPCK_OK && left > 0) {
        const uint64_t wanted = skip > 0 ? skip : left;
        const uint64_t n = wanted < PIECE_NBYTES ? wanted : PIECE_NBYTES;
        st = cancel_check(c->r->cancel, err);
        if (st == FSDPCK_OK)
            st = src->stream_read(s, piece, n, err);
        if (st == FSDPCK_OK && skip == 0)
            scan_piece(c, e, piece, n, &sums);
        left -= skip > 0 ? 0 : n;
        skip -= skip > 0 ? n : 0;
        progress_add(c->r->progress, n);
    }
    if (st == FSDPCK_OK)
        st = src->stream_finish(s, err);
    src->stream_close(s);
    if (st == FSDPCK_OK)
        keep_sums(c, e, &sums);
    return st;
}

static fsdpck_status run_job(void *ctx, unsigned worker, uint64_t number, fsdpck_error *err)
{
    byte_work *w = ctx;
    const job *j = VEC_AT(&w->jobs, const job, number);
    for (uint32_t i = j->first; i < j->end; i++) {
        const extent *e = VEC_AT(&w->c->extents, const extent, i);
        fsdpck_error what;
        fsdpck_error_init(&what);
        const uint64_t end = j->end_bytes < e->nbytes ? j->end_bytes : e->nbytes;
        const fsdpck_status st =
            e->stream ? read_stream(w, e, w->pieces[worker], &what)
                      : read_part(w, i, j->begin_bytes, end, w->pieces[worker], &what);
        if (st == FSDPCK_OK)
            continue;
        check_context(w->c, e->chunk, &what);
        if (!check_is_finding(st)) {
            if (err != NULL)
                *err = what;
            return st;
        }
        findings_tell(w->c->found, &what);
    }
    return FSDPCK_OK;
}

static fsdpck_status list_jobs(byte_work *w, fsdpck_error *err)
{
    const vec *extents = &w->c->extents;
    uint64_t gathered = JOB_NBYTES;
    for (uint32_t i = 0; i < extents->count; i++) {
        const extent *e = VEC_AT(extents, const extent, i);
        if (gathered + e->nbytes <= JOB_NBYTES && !e->stream) {
            VEC_AT(&w->jobs, job, w->jobs.count - 1)->end = i + 1;
            gathered += e->nbytes;
            continue;
        }
        uint64_t at = 0;
        do {
            job *j = vec_push(&w->jobs, err);
            if (j == NULL)
                return FSDPCK_LIMIT;
            const bool cut = !e->stream && e->nbytes > JOB_NBYTES;
            *j = (job){.first = i,
                       .end = i + 1,
                       .begin_bytes = at,
                       .end_bytes = cut ? at + JOB_NBYTES : UINT64_MAX};
            at += cut ? JOB_NBYTES : e->nbytes;
        } while (at < e->nbytes);
        gathered = e->stream || e->nbytes > JOB_NBYTES ? JOB_NBYTES : e->nbytes;
    }
    return FSDPCK_OK;
}

static void compare_crcs(byte_work *w)
{
    check *c = w->c;
    for (uint32_t i = 0; i < c->extents.count; i++) {
        const extent *e = VEC_AT(&c->extents, const extent, i);
        fsdpck_error what;
        if (e->has_crc && !e->stream)
            c->result->bytes_summed += e->nbytes;
        if (!e->has_crc || e->stream || w->crcs[i] == e->crc32)
            continue;
        fsdpck_error_init(&what);
        error_set(&what, FSDPCK_BADINPUT, "ZIP-CRC", "bytes of the tensor are not what was saved");
        check_context(c, e->chunk, &what);
        error_offset(&what, e->offset_bytes);
        error_expected(&what, "CRC-32 %08x over %" PRIu64 " bytes", e->crc32, e->nbytes);
        error_found(&what, "%08x", w->crcs[i]);
        error_next(&what, "the file changed after it was written: take another copy of it");
        findings_tell(c->found, &what);
    }
}

static void count_unsummed(check *c)
{
    uint32_t last = CAT_NONE;
    for (size_t i = 0; i < c->extents.count; i++) {
        const extent *e = VEC_AT(&c->extents, const extent, i);
        if (e->has_crc || e->stream)
            continue;
        c->result->unsummed_nbytes += e->nbytes;
        if (tensor_of(c, e) != last)
            c->result->unsummed_tensors++;
        last = tensor_of(c, e);
    }
}

static fsdpck_status begin(byte_work *w, unsigned workers, fsdpck_error *err)
{
    check *c = w->c;
    w->crcs = calloc(c->extents.count + 1, sizeof *w->crcs);
    w->pieces = calloc(workers, sizeof *w->pieces);
    if (w->crcs == NULL || w->pieces == NULL)
        return error_set_nomem(err, c->extents.count * sizeof *w->crcs);
    for (unsigned i = 0; i < workers; i++) {
        w->pieces[i] = malloc(PIECE_NBYTES);
        if (w->pieces[i] == NULL)
            return error_set_nomem(err, PIECE_NBYTES);
    }
    return list_jobs(w, err);
}

fsdpck_status check_bytes(check *c, fsdpck_error *err)
{
    byte_work w = {.c = c, .jobs = VEC_OF(job, c->r->metadata)};
    const unsigned workers = c->r->nthreads > 0 ? c->r->nthreads : 1;
    const uint64_t ntensors = catalogue_tensor_count(c->r->cat);
    fsdpck_status st = begin(&w, workers, err);
    if (st == FSDPCK_OK && c->r->level >= CHECK_NUMERIC) {
        c->sums = calloc(ntensors + 1, sizeof *c->sums);
        if (c->sums == NULL)
            st = error_set_nomem(err, ntensors * sizeof *c->sums);
    }
    progress_phase(c->r->progress, "reading", c->result->bytes_total);
    if (st == FSDPCK_OK)
        st = pool_run(workers, w.jobs.count, run_job, &w, c->r->cancel, err);
    if (st == FSDPCK_OK) {
        c->result->bytes_read = c->result->bytes_total;
        compare_crcs(&w);
        count_unsummed(c);
        if (c->sums != NULL)
            check_numbers(c);
    }
    for (unsigned i = 0; w.pieces != NULL && i < workers; i++)
        free(w.pieces[i]);
    free(w.pieces);
    free(w.crcs);
    free(c->sums);
    c->sums = NULL;
    vec_release(&w.jobs);
    return st;
}
