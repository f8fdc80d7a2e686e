/* symlink_file.h: files that name a checkpoint in their text. */
#ifndef FSDPCK_OPEN_SYMLINK_FILE_H
#define FSDPCK_OPEN_SYMLINK_FILE_H

#include "open/checkpoint.h"

/* Collective. As open_probe_ranks, of the checkpoint that `path` names if it is such a file. BADINPUT (LINK-TARGET)
 * if that is not here. */
fsdpck_status open_probe_linked(fsdpck_checkpoint *c, const char *path,
                                const fsdpck_open_options *o, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
