/* tensor_glob.h: a selection of single tensors, to compute their digests. */
#ifndef FSDPCK_RUN_TENSOR_GLOB_H
#define FSDPCK_RUN_TENSOR_GLOB_H

#include "open/checkpoint.h"

/* A glob that matches the cleaned name of a tensor of the model part, and nothing else. `glob`, zeroed;
 * release it also after a failure. */
fsdpck_status tensor_glob_make(const fsdpck_checkpoint *src, uint32_t tensor, text_buf *glob,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
