/* open_fail.h: errors of paths that are no checkpoint, and of folders that contain several. */
#ifndef FSDPCK_OPEN_FAIL_H
#define FSDPCK_OPEN_FAIL_H

#include "open/checkpoint.h"

/* NO-CHECKPOINT, near_miss: what it resembles, or NULL; and USAGE, which lists the paths found (open_fail.c). */
fsdpck_status open_fail_no_checkpoint(const probe_input *in, const char *path,
                                      const char *near_miss, fsdpck_error *err);
/* SEARCH-LIMIT */
fsdpck_status open_fail_limited(const char *path, fsdpck_error *err);
fsdpck_status open_fail_several(const search_result *found, const char *path, fsdpck_error *err);

/* USAGE: no reader has this name. */
fsdpck_status open_fail_format(const char *name, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
