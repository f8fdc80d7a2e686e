/* The kernels: gpu_body.h run by a device. */
#include <cuda_runtime.h>

#define GPU_FN     static __device__ __forceinline__
#define GPU_OWN_FN static __device__ __noinline__
#include "kernels/gpu_body.h"
#include "kernels/gpu_crc_body.h"
#include "kernels/gpu_cuda_launch.h"

/* Largest number of blocks for one sum: enough to fill any device. */
#define SUM_BLOCKS 1024u

/* Of place_kernel on a processor of the device at least: threads that wait for memory need others. */
#define PLACE_BLOCKS 6

#define ALL_LANES 0xFFFFFFFFu

typedef unsigned long long counter;

/* By shuffles, which devices before 8.0 have too. */
static __device__ __forceinline__ void add_of_warp(counter *total, counter sum)
{
    for (unsigned step = 16; step > 0; step /= 2)
        sum += __shfl_down_sync(ALL_LANES, sum, step);
    if (threadIdx.x % 32 == 0)
        atomicAdd(total, sum);
}

/* The error of this launch alone: cudaGetLastError would give an older one of the thread. */
static int launch(const void *kernel, unsigned blocks, void **arguments, void *stream)
{
    return cudaLaunchKernel(kernel, dim3(blocks), dim3(GPU_THREADS), arguments, 0,
                            (cudaStream_t)stream);
}

__global__ void __launch_bounds__(GPU_THREADS, PLACE_BLOCKS) place_kernel(gpu_batch p)
{
    const gpu_box *boxes = (const gpu_box *)p.boxes;
    gpu_search search = {0, p.count};
    if (p.sum != 0 && *(const uint64_t *)p.sum != p.sum_expected)
        return;
    while (search.count > 1)
        gpu_search_narrow(&search,
                          (uint32_t)__syncthreads_count(gpu_search_compare(
                              &search, boxes, blockIdx.x, threadIdx.x, GPU_THREADS)),
                          GPU_THREADS);
    const uint32_t lost =
        gpu_run_task(boxes + search.first, (const gpu_dim *)p.dims, (const uint8_t *)p.src,
                     (uint8_t *)p.dst, blockIdx.x, threadIdx.x, GPU_THREADS);
    if (__any_sync(ALL_LANES, lost != 0))
        add_of_warp((counter *)p.lost, lost);
}

__global__ void __launch_bounds__(GPU_THREADS)
    sum_kernel(const uint8_t *at, uint64_t nbytes, counter *total)
{
    counter sum = gpu_sum_words(at, nbytes, blockIdx.x * (uint64_t)GPU_THREADS + threadIdx.x,
                                gridDim.x * (uint64_t)GPU_THREADS);
    add_of_warp(total, sum);
}

__global__ void __launch_bounds__(GPU_CRC_THREADS) crc_kernel(gpu_crc c, counter *crc)
{
    __shared__ uint64_t table[256];
    __shared__ uint64_t sums[GPU_CRC_THREADS];
    table[threadIdx.x] = gpu_crc_entry(&c, threadIdx.x);
    __syncthreads();
    sums[threadIdx.x] = gpu_crc_words(&c, table, (const uint8_t *)c.at, blockIdx.x, threadIdx.x);
    for (unsigned level = 0; level < GPU_CRC_LEVELS; level++) {
        __syncthreads();
        uint64_t *pair = sums + gpu_crc_pair(level, threadIdx.x);
        if (threadIdx.x < gpu_crc_pairs(level))
            *pair = gpu_crc_join(&c, level, pair);
    }
    if (threadIdx.x == 0)
        atomicXor(crc, (counter)gpu_crc_block(&c, sums[0], blockIdx.x));
}

int gpu_launch_batch(void *stream, const gpu_batch *what)
{
    if (what->tasks == 0)
        return cudaSuccess;
    gpu_batch batch = *what;
    void *arguments[] = {&batch};
    return launch((const void *)place_kernel, what->tasks, arguments, stream);
}

int gpu_launch_sum(void *stream, gpu_address at, uint64_t nbytes, gpu_address sum)
{
    const uint64_t want = nbytes / (8 * GPU_THREADS) + 1;
    const unsigned blocks = want < SUM_BLOCKS ? (unsigned)want : SUM_BLOCKS;
    void *arguments[] = {&at, &nbytes, &sum}; /* addresses are pointers on the device */
    return launch((const void *)sum_kernel, blocks, arguments, stream);
}

int gpu_launch_crc(void *stream, const gpu_crc *c, gpu_address crc)
{
    gpu_crc copy = *c;
    void *arguments[] = {&copy, &crc};
    return launch((const void *)crc_kernel, c->blocks, arguments, stream);
}

int gpu_launch_check(void)
{
    cudaFuncAttributes a;
    cudaError_t e = cudaFuncGetAttributes(&a, place_kernel);
    if (e == cudaSuccess)
        e = cudaFuncGetAttributes(&a, sum_kernel);
    return e != cudaSuccess ? e : cudaFuncGetAttributes(&a, crc_kernel);
}
