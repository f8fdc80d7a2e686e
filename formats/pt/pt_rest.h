/* pt_rest.h: records of one torch.save file that no tensor lies in, for verify. */
#ifndef FSDPCK_FORMATS_PT_REST_H
#define FSDPCK_FORMATS_PT_REST_H

#include "formats/common/zip_sum.h"

/* `path`: for findings. Large records go to several threads, one each. */
fsdpck_status pt_rest_sum(const zip_archive *zip, const char *path, const rest_request *request,
                          rest_result *result, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
