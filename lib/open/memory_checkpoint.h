/* memory_checkpoint.h: fsdpck_open_memory with a GPU of the caller's. */
#ifndef FSDPCK_OPEN_MEMORY_CHECKPOINT_H
#define FSDPCK_OPEN_MEMORY_CHECKPOINT_H

#include "exec/exec.h"
#include "fsdpck_memory.h"
#include "open/checkpoint.h"

/* g: the device that has the memory, borrowed until fsdpck_close; NULL: it is the host's. */
fsdpck_status open_memory_with_gpu(fsdpck_context *ctx, const fsdpck_memory_tensor *tensors,
                                   size_t count, const fsdpck_memory_options *options, gpu *g,
                                   fsdpck_checkpoint **out, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
