/* gpu_cuda_launch.h: the functions of gpu_cuda_kernels.cu that gpu_cuda.c calls. Each returns CUDA's code, 0
 * for success. For kernels/ only. */
#ifndef FSDPCK_KERNELS_GPU_CUDA_LAUNCH_H
#define FSDPCK_KERNELS_GPU_CUDA_LAUNCH_H

#include "kernels/gpu_crc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `stream` is a cudaStream_t. */
int gpu_launch_batch(void *stream, const gpu_batch *what);
int gpu_launch_sum(void *stream, gpu_address at, uint64_t nbytes, gpu_address sum);
int gpu_launch_crc(void *stream, const gpu_crc *c, gpu_address crc);
/* Loads the code; fails if the current device cannot run it. */
int gpu_launch_check(void);

#ifdef __cplusplus
}
#endif
#endif
