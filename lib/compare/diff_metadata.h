/* diff_metadata.h: texts of `__metadata__` of safetensors files, and of `metadata` of their index, which are no part of the
 * tensors that diff compares.
 */
#ifndef FSDPCK_COMPARE_DIFF_METADATA_H
#define FSDPCK_COMPARE_DIFF_METADATA_H

#include "open/checkpoint.h"

/* STATE-BESIDE if both are safetensors files and these texts differ. */
void diff_metadata_warn(const fsdpck_checkpoint *a, const fsdpck_checkpoint *b, const logger *log);

#endif
