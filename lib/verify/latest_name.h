/* latest_name.h: names of checkpoints without a step. */
#ifndef FSDPCK_VERIFY_LATEST_NAME_H
#define FSDPCK_VERIFY_LATEST_NAME_H

#include "base/step_name.h"

/* The newest of a run by convention: 'last.ckpt', 'latest', 'hpc_ckpt_3.ckpt'. */
bool latest_name_is_newest(const char *name);

/* Such a name, or one without a number. s: what the name contains. The number of 'hpc_ckpt_3.ckpt' is no step. */
bool latest_name_has_no_step(const char *name, const step_name *s);

#endif
