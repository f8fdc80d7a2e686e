/* overwrite_check.h: a command must not overwrite the files that its options name as input. */
#ifndef FSDPCK_CLI_OVERWRITE_CHECK_H
#define FSDPCK_CLI_OVERWRITE_CHECK_H

#include "command_options.h"

/* Whether `path`, which exists, names the file or folder `other`, or something in the folder `other`. */
bool overwrite_is_inside(const char *path, const char *other);

/* FSDPCK_USAGE if DST or the manifest would replace the file of --model, --like, --tp-plan or --check,
 * or a folder that contains it. `dst` may be NULL. All ranks must call it. */
fsdpck_status overwrite_check(const cli *c, const command_request *r, const char *dst,
                              fsdpck_error *err);

#endif
