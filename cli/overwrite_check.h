/* overwrite_check.h: files that options name to be read are not what the same command writes. */
#ifndef FSDPCK_CLI_OVERWRITE_CHECK_H
#define FSDPCK_CLI_OVERWRITE_CHECK_H

#include "transform_options.h"

/* USAGE where DST or the manifest would replace the file of --model, --like, --tp-plan or --check, or
 * a folder that holds it. `dst` is NULL where there is none. By all ranks. */
fsdpck_status overwrite_check(const cli *c, const transform_request *r, const char *dst,
                              fsdpck_error *err);

#endif
