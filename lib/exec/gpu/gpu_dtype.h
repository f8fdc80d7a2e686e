/* gpu_dtype.h: our dtypes as the kernels number them. */
#ifndef FSDPCK_EXEC_GPU_GPU_DTYPE_H
#define FSDPCK_EXEC_GPU_GPU_DTYPE_H

#include "kernels/gpu.h"
#include "state/dtype.h"

/* GPU_BYTES for a dtype that the kernels only copy. */
gpu_dtype gpu_dtype_of(dtype d);

#endif
