/* digest_beside.h: what a list of digests does not cover, though it lies in the folder of the checkpoint. */
#ifndef FSDPCK_COMPARE_DIGEST_BESIDE_H
#define FSDPCK_COMPARE_DIGEST_BESIDE_H

#include "open/checkpoint.h"
#include "run/digest_run.h"

/* STATE-BESIDE for files of a trainer's state and other files of torch.save beside the weights of `src`, and folders below
 * that are checkpoints of their own. Nothing where tensors are selected. */
fsdpck_status digest_beside_warn(fsdpck_checkpoint *src, const fsdpck_digest_options *options,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
