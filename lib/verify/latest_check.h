/* latest_check.h: whether one checkpoint is complete, for the search of the newest one. */
#ifndef FSDPCK_VERIFY_LATEST_CHECK_H
#define FSDPCK_VERIFY_LATEST_CHECK_H

#include "fsdpck_verify.h"
#include "verify/resume_state.h"

/* Quick: metadata is valid, all files exist and are long enough; metadata of separate ranks covers
 * each tensor; files of a trainer's state are not cut off. Coverage: also that chunks cover each
 * tensor, blob headers agree, and objects and the trainer's state can be read. Folders directly below that are
 * checkpoints of their own are checked in the same way. KEY-NONE: without tensors. state: receives that of the
 * checkpoint, also without tensors; NULL: not needed. takes_cut: defects of weights that are not read (WEIGHTS-CUT) are
 * warnings, as in verify. */
fsdpck_status latest_check_one(fsdpck_context *ctx, const char *path, bool takes_cut,
                               const fsdpck_latest_options *o, resume_state *state,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
