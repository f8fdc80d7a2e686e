/* gpu_launch.h: gpu_kernels.cu as gpu_cuda.c sees it. Each returns what CUDA says, 0 for success.
 * Inside kernels/ only. */
#ifndef FSDPCK_KERNELS_GPU_LAUNCH_H
#define FSDPCK_KERNELS_GPU_LAUNCH_H

#include "kernels/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `stream` is a cudaStream_t. */
int gpu_launch_batch(void *stream, const gpu_batch *what);
int gpu_launch_sum(void *stream, gpu_address at, uint64_t nbytes, gpu_address sum);
/* Whether the code can be run by the current device: loads it. */
int gpu_launch_check(void);

#ifdef __cplusplus
}
#endif
#endif
