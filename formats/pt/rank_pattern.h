/* rank_pattern.h: names of the files of ranks, from a pattern with "{r}" and "{W}". */
#ifndef FSDPCK_PT_RANK_PATTERN_H
#define FSDPCK_PT_RANK_PATTERN_H

#include "base/status.h"

enum { RANK_FILE_NAME_NBYTES = 256 };

/* USAGE if it produces invalid file names, or the same name for several ranks. */
fsdpck_status rank_pattern_check(const char *pattern, uint64_t world_size,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* USAGE if the name is too long. */
fsdpck_status rank_pattern_name(const char *pattern, uint64_t rank, uint64_t world_size,
                                char name[RANK_FILE_NAME_NBYTES],
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
