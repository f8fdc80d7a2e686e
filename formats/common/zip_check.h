/* zip_check.h: checks all records of a zip against their CRCs, which readers do not do.
 *
 *     zip_checker s;
 *     RETURN_IF(zip_checker_init(&s, request, file, path, err));
 *     st = zip_check_records(&s, &archive, err);          // reports findings to request->found
 *     zip_checker_release(&s);
 *
 * One thread per checker. Skips records that the caller checks (request->is_checked_elsewhere) and
 * archives without CRCs.
 */
#ifndef FSDPCK_FORMATS_COMMON_ZIP_CHECK_H
#define FSDPCK_FORMATS_COMMON_ZIP_CHECK_H

#include "formats/common/zip.h"
#include "formats/format.h"

typedef struct zip_checker {
    const record_check_request *request;
    record_check_result result; /* running totals */
    uint8_t *piece;
} zip_checker;

/* On failure *s may still be released. */
fsdpck_status zip_checker_init(zip_checker *s, const record_check_request *request,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
void zip_checker_release(zip_checker *s); /* also a zeroed one */

/* `file_id` is the catalogue's; `path` and `tensor` (NULL: none) are for findings. The status is
 * not OK only if records could not be read. */
fsdpck_status zip_check_records(zip_checker *s, const zip_archive *z, uint32_t file_id,
                                const char *path, const char *tensor,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* One record. */
fsdpck_status zip_check_record(zip_checker *s, const zip_archive *z, const zip_entry *e,
                               uint32_t file_id, const char *path, const char *tensor,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Checks torch's serialization id, if present, against the records' CRCs; part of
 * zip_check_records. */
void zip_check_serialization_id(const record_check_request *request, const zip_archive *z,
                                const char *path, const char *tensor);

/* Whether a failure is caused by the input: a finding, not a status. */
static inline bool status_is_finding(fsdpck_status st)
{
    return st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED;
}

/* Calls fn for each job in 0..njobs-1 on several threads, each with its own checker, and adds the
 * totals of all to *result, also after a failure. `owner`: for memory. */
typedef fsdpck_status (*zip_check_job_fn)(void *ctx, zip_checker *s, uint64_t job,
                                          fsdpck_error *err);
fsdpck_status zip_check_jobs(const record_check_request *request, budget *owner, uint64_t njobs,
                             zip_check_job_fn fn, void *ctx, record_check_result *result,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
