/* pt_check_records.h: checks the records of a torch.save file outside tensors, for verify. */
#ifndef FSDPCK_FORMATS_PT_CHECK_RECORDS_H
#define FSDPCK_FORMATS_PT_CHECK_RECORDS_H

#include "formats/common/zip_check.h"

/* `path`: for findings. Large records are checked by several threads, one each. */
fsdpck_status pt_check_records(const zip_archive *zip, const char *path,
                               const record_check_request *request, record_check_result *result,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
