/* zip_sum.h: records of a zip against their CRCs, all of them, which readers do not need to do.
 *
 *     zip_summer s;
 *     RETURN_IF(zip_summer_init(&s, request, file, path, err));
 *     st = zip_sum_records(&s, &archive, err);          // what is wrong goes to request->found
 *     zip_summer_release(&s);
 *
 * One thread a summer. Records that the caller of verify sums himself (request->is_summed) are left
 * to him, and so are those of archives that record no CRC.
 */
#ifndef FSDPCK_FORMATS_COMMON_ZIP_SUM_H
#define FSDPCK_FORMATS_COMMON_ZIP_SUM_H

#include "formats/common/zip.h"
#include "formats/format.h"

typedef struct zip_summer {
    const rest_request *request;
    rest_result result; /* is added to */
    uint8_t *piece;
} zip_summer;

/* On failure *s may still be released. */
fsdpck_status zip_summer_init(zip_summer *s, const rest_request *request,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
void zip_summer_release(zip_summer *s); /* also a zeroed one */

/* `file_id` is the catalogue's; `path` and `tensor` (NULL: none) are for findings. The status is other
 * than OK only where records could not be read. */
fsdpck_status zip_sum_records(zip_summer *s, const zip_archive *z, uint32_t file_id,
                              const char *path, const char *tensor,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* One record. */
fsdpck_status zip_sum_record(zip_summer *s, const zip_archive *z, const zip_entry *e,
                             uint32_t file_id, const char *path, const char *tensor,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether torch's serialization id, where there is one, goes with the records' CRCs; all records do
 * that with zip_sum_records. */
void zip_sum_serial(const rest_request *request, const zip_archive *z, const char *path,
                    const char *tensor);

/* Whether a failure is the input's, and so a finding and no status. */
static inline bool rest_is_finding(fsdpck_status st)
{
    return st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED;
}

/* Of many summers, one of each worker. */
void rest_result_add(rest_result *to, const rest_result *from);

#endif
