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

/* Adds the result of one worker's checker. */
void record_check_result_add(record_check_result *to, const record_check_result *from);

#endif
