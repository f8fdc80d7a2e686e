/* open_quietly.h: opens a file or folder beside the checkpoint that is read, without a message, also one with objects of unknown
 * classes. */
#ifndef FSDPCK_OPEN_OPEN_QUIETLY_H
#define FSDPCK_OPEN_OPEN_QUIETLY_H

#include "open/checkpoint.h"

/* open: checkpoint_open, which calls what calls this. */
fsdpck_status open_quietly(checkpoint_open_fn open, fsdpck_context *ctx, const char *path,
                           fsdpck_checkpoint **out, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
