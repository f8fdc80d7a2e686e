/* load_internal.h: fsdpck_load with a GPU of the caller's. */
#ifndef FSDPCK_RUN_LOAD_INTERNAL_H
#define FSDPCK_RUN_LOAD_INTERNAL_H

#include "exec/exec.h"
#include "fsdpck_load.h"

/* g: the device that has the memory; NULL: it is the host's. */
fsdpck_status load_with_gpu(fsdpck_context *ctx, fsdpck_checkpoint *ckpt,
                            const fsdpck_load_tensor *tensors, size_t count,
                            const fsdpck_load_options *options, gpu *g,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
