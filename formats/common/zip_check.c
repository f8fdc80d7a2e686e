#include "formats/common/zip_check.h"

#include <stdlib.h>

#include "base/crc.h"
#include "formats/common/torch_serialization_id.h"

/* Stays in the caches near the core. */
#define PIECE_NBYTES ((uint64_t)256 << 10)

fsdpck_status zip_checker_init(zip_checker *s, const record_check_request *request,
                               fsdpck_error *err)
{
    *s = (zip_checker){.request = request, .piece = malloc(PIECE_NBYTES)};
    return s->piece == NULL ? error_set_nomem(err, PIECE_NBYTES) : FSDPCK_OK;
}

void zip_checker_release(zip_checker *s)
{
    free(s->piece);
    s->piece = NULL;
}

/* Adds the result of one worker's checker. */
static void record_check_result_add(record_check_result *to, const record_check_result *from)
{
    to->records += from->records;
    to->checked_nbytes += from->checked_nbytes;
    to->unverified_nbytes += from->unverified_nbytes;
}

typedef struct check_work {
    zip_check_job_fn fn;
    void *ctx;
    zip_checker *checkers; /* by worker */
} check_work;

static fsdpck_status check_job(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err)
{
    const check_work *w = ctx;
    return w->fn(w->ctx, &w->checkers[worker], job, err);
}

fsdpck_status zip_check_jobs(const record_check_request *request, budget *owner, uint64_t njobs,
                             zip_check_job_fn fn, void *ctx, record_check_result *result,
                             fsdpck_error *err)
{
    const unsigned workers = request->nthreads > 0 ? request->nthreads : 1;
    zip_checker *checkers = budget_alloc(owner, workers * sizeof *checkers, err);
    check_work w = {.fn = fn, .ctx = ctx, .checkers = checkers};
    fsdpck_status st = FSDPCK_OK;

    if (checkers == NULL)
        return FSDPCK_LIMIT;
    for (unsigned i = 0; st == FSDPCK_OK && i < workers; i++)
        st = zip_checker_init(&checkers[i], request, err);
    if (st == FSDPCK_OK)
        st = pool_run(workers, njobs, check_job, &w, request->cancel, err);
    for (unsigned i = 0; i < workers; i++) {
        record_check_result_add(result, &checkers[i].result);
        zip_checker_release(&checkers[i]);
    }
    budget_free(owner, checkers, workers * sizeof *checkers);
    return st;
}

static fsdpck_status check_stored(zip_checker *s, const zip_archive *z, const zip_entry *e,
                                  uint32_t *crc, fsdpck_error *err)
{
    *crc = 0;
    for (uint64_t at = 0; at < e->nbytes;) {
        const uint64_t left = e->nbytes - at;
        const uint64_t n = left < PIECE_NBYTES ? left : PIECE_NBYTES;
        RETURN_IF(cancel_check(s->request->cancel, err));
        RETURN_IF(z->in.read(z->in.ctx, e->data_offset_bytes + at, s->piece, n, err));
        *crc = crc32_update(*crc, s->piece, n);
        progress_add(s->request->progress, n);
        at += n;
    }
    return FSDPCK_OK;
}

static fsdpck_status check_deflated(zip_checker *s, const zip_archive *z, const zip_entry *e,
                                    fsdpck_error *err)
{
    zip_inflater *inf;
    RETURN_IF(zip_inflater_open(&z->in, e, !z->no_crc, &inf, err));
    fsdpck_status st = FSDPCK_OK;
    for (uint64_t left = e->nbytes; left > 0 && st == FSDPCK_OK;) {
        const uint64_t n = left < PIECE_NBYTES ? left : PIECE_NBYTES;
        st = cancel_check(s->request->cancel, err);
        if (st == FSDPCK_OK)
            st = zip_inflater_read(inf, s->piece, n, err);
        left -= n;
    }
    if (st == FSDPCK_OK)
        st = zip_inflater_finish(inf, err);
    zip_inflater_close(inf);
    return st;
}

static fsdpck_status sum_record(zip_checker *s, const zip_archive *z, const zip_entry *e,
                                fsdpck_error *err)
{
    uint32_t crc;

    RETURN_IF(zip_entry_check(z, e, err));
    if (e->method != 0)
        return check_deflated(s, z, e, err);
    if (z->no_crc)
        return FSDPCK_OK;
    RETURN_IF(check_stored(s, z, e, &crc, err));
    if (crc == e->crc32)
        return FSDPCK_OK;
    char shown[160];
    const char *name = zip_name(z, e);
    return FAIL_WITH(
        err, BADINPUT, ZIP_CRC,
        ("CRC-32 of record '%s' does not match",
         escape_text(shown, sizeof shown, name, strtab_nbytes(&z->names, e->name))),
        (offset, e->data_offset_bytes),
        (expected, "CRC-32 %08x over %llu bytes", e->crc32, (unsigned long long)e->nbytes),
        (found, "%08x", crc));
}

fsdpck_status zip_check_record(zip_checker *s, const zip_archive *z, const zip_entry *e,
                               uint32_t file_id, const char *path, const char *tensor,
                               fsdpck_error *err)
{
    const record_check_request *r = s->request;
    fsdpck_error what = FSDPCK_ERROR_INIT;

    if (e->method == 0 && r->is_checked_elsewhere(r->checked_ctx, file_id, e->data_offset_bytes))
        return FSDPCK_OK;
    const fsdpck_status st = sum_record(s, z, e, &what);
    s->result.records++;
    if (e->nbytes > 0 && !z->no_crc)
        s->result.checked_nbytes += e->nbytes;
    if (st == FSDPCK_OK)
        return st;
    error_path(&what, path);
    error_tensor(&what, tensor);
    if (status_is_finding(st)) {
        r->found(r->found_ctx, FORMAT_ERROR, &what);
        return FSDPCK_OK;
    }
    if (err != NULL)
        *err = what;
    return st;
}

void zip_check_serialization_id(const record_check_request *request, const zip_archive *z,
                                const char *path, const char *tensor)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (torch_serialization_id_check(z, &what) == FSDPCK_OK)
        return;
    error_path(&what, path);
    error_tensor(&what, tensor);
    request->found(request->found_ctx, FORMAT_WARNING, &what);
}

fsdpck_status zip_check_records(zip_checker *s, const zip_archive *z, uint32_t file_id,
                                const char *path, const char *tensor, fsdpck_error *err)
{
    for (size_t i = 0; i < z->entries.count; i++)
        RETURN_IF(zip_check_record(s, z, VEC_AT(&z->entries, const zip_entry, i), file_id, path,
                                   tensor, err));
    zip_check_serialization_id(s->request, z, path, tensor);
    return FSDPCK_OK;
}
