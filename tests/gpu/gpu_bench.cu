/* gpu_bench [--quick]: how fast the kernels are on this machine's GPU, as a share of the best plain copy
 * that the same process measures: cudaMemcpyAsync or a kernel of 16 bytes a thread. Bytes read and
 * written count. Rows are named after the benchmarks that they are:
 *
 *     G1  column shards to whole rows, runs of 16 B to 64 KiB, aligned and 2 bytes off
 *     G2  casts
 *     G6  100,000 tensors in one launch
 *
 * Digests and scans (G3, G4) are done by the host; G5 is the program itself, see scripts/gpu_tests.
 * Exit status 77 where there is no GPU. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gpu_cuda_launch.h"

#define SKIPPED 77
#define BOXES   100000u
#define REPEATS 20

#define MUST(call)                                                                      \
    do {                                                                                \
        const cudaError_t e_ = (cudaError_t)(call);                                     \
        if (e_ != cudaSuccess) {                                                        \
            fprintf(stderr, "gpu_bench.cu:%d: %s\n", __LINE__, cudaGetErrorString(e_)); \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

typedef struct bench {
    size_t nbytes; /* of each side */
    uint8_t *src, *dst;
    gpu_box *boxes, *boxes_here;
    gpu_dim *dims, *dims_here;
    uint64_t *lost;
    gpu_batch place;
    uint32_t dims_count;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    double reference;
} bench;

static __global__ void copy_kernel(uint4 *to, const uint4 *from, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        to[i] = from[i];
}

static void launch_boxes(bench *b)
{
    MUST(gpu_launch_batch(b->stream, &b->place));
}

static void launch_copy(bench *b)
{
    copy_kernel<<<4096, 256, 0, b->stream>>>((uint4 *)b->dst, (const uint4 *)b->src,
                                             b->nbytes / 16);
    MUST(cudaGetLastError());
}

static void launch_memcpy(bench *b)
{
    MUST(cudaMemcpyAsync(b->dst, b->src, b->nbytes, cudaMemcpyDeviceToDevice, b->stream));
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float run_ms(bench *b, void (*launch)(bench *), int times)
{
    float ms;
    MUST(cudaEventRecord(b->begin, b->stream));
    for (int i = 0; i < times; i++)
        launch(b);
    MUST(cudaEventRecord(b->end, b->stream));
    MUST(cudaEventSynchronize(b->end));
    MUST(cudaEventElapsedTime(&ms, b->begin, b->end));
    return ms / (float)times;
}

/* Median seconds of one launch; each of the repeats lasts 10 ms at least. */
static double measure(bench *b, void (*launch)(bench *))
{
    float all[REPEATS];
    const float once = run_ms(b, launch, 10);
    const int times = once > 10 ? 1 : (int)(10 / once) + 1;
    for (int i = 0; i < REPEATS; i++)
        all[i] = run_ms(b, launch, times);
    qsort(all, REPEATS, sizeof all[0], compare_floats);
    return all[REPEATS / 2] / 1e3;
}

static void begin_list(bench *b)
{
    memset(&b->place, 0, sizeof b->place);
    b->dims_count = 0;
}

static void add(bench *b, const gpu_copy *c)
{
    gpu_box *box = &b->boxes_here[b->place.count];
    if (b->place.count == BOXES || !gpu_box_prepare(box, b->dims_here + b->dims_count, c)) {
        fprintf(stderr, "gpu_bench: too many or too large boxes\n");
        exit(1);
    }
    box->first_task = b->place.tasks;
    box->dims_at = b->dims_count;
    b->place.tasks += box->tasks;
    b->dims_count += box->ndim;
    b->place.count++;
}

static void report(bench *b, const char *name, double bytes)
{
    b->place.src = (gpu_address)b->src;
    b->place.dst = (gpu_address)b->dst;
    b->place.boxes = (gpu_address)b->boxes;
    b->place.dims = (gpu_address)b->dims;
    b->place.lost = (gpu_address)b->lost;
    MUST(cudaMemcpy(b->boxes, b->boxes_here, b->place.count * sizeof(gpu_box),
                    cudaMemcpyHostToDevice));
    MUST(
        cudaMemcpy(b->dims, b->dims_here, b->dims_count * sizeof(gpu_dim), cudaMemcpyHostToDevice));
    const double rate = bytes / measure(b, launch_boxes) / 1e9;
    printf("%-36s %8.1f GB/s %6.1f %%\n", name, rate, 100 * rate / b->reference);
}

/* Eight shards, each a block of rows of `run` bytes, to rows of all. */
static void columns(bench *b, uint64_t run, uint64_t offset)
{
    char name[64];
    const uint64_t rows_all = (b->nbytes - 4096) / (8 * run);
    const uint64_t rows_most = ((uint64_t)32 << 20) / run;
    uint64_t done = 0;
    begin_list(b);
    for (uint64_t s = 0; s < 8; s++) {
        for (uint64_t row = 0; row < rows_all; row += rows_most) {
            const uint64_t rows = rows_all - row < rows_most ? rows_all - row : rows_most;
            const uint64_t sizes[2] = {rows, run / 2};
            const uint64_t src_strides[2] = {run, 2};
            const uint64_t dst_strides[2] = {8 * run, 2};
            gpu_copy c;
            memset(&c, 0, sizeof c);
            c.src = (s * rows_all + row) * run + offset;
            c.dst = row * 8 * run + s * run;
            c.ndim = 2;
            c.sizes = sizes;
            c.src_strides = src_strides;
            c.dst_strides = dst_strides;
            c.from_nbytes = c.to_nbytes = 2;
            add(b, &c);
            done += rows * run;
        }
    }
    snprintf(name, sizeof name, "G1 columns, runs of %llu B%s", (unsigned long long)run,
             offset == 0 ? "" : ", 2 B off");
    report(b, name, 2.0 * (double)done);
}

static void cast(bench *b, const char *name, gpu_dtype from, unsigned from_nbytes, gpu_dtype to,
                 unsigned to_nbytes)
{
    const uint64_t each = 1 << 24;
    const uint64_t most = b->nbytes / (from_nbytes > to_nbytes ? from_nbytes : to_nbytes) - 16;
    uint64_t done = 0;
    begin_list(b);
    while (done < most) {
        const uint64_t n = most - done < each ? most - done : each;
        const uint64_t src_stride = from_nbytes, dst_stride = to_nbytes;
        gpu_copy c;
        memset(&c, 0, sizeof c);
        c.src = done * from_nbytes;
        c.dst = done * to_nbytes;
        c.ndim = 1;
        c.sizes = &n;
        c.src_strides = &src_stride;
        c.dst_strides = &dst_stride;
        c.from = from;
        c.to = to;
        c.from_nbytes = from_nbytes;
        c.to_nbytes = to_nbytes;
        add(b, &c);
        done += n;
    }
    report(b, name, (double)done * (from_nbytes + to_nbytes));
}

static void tensors(bench *b, uint64_t nbytes)
{
    char name[64];
    uint64_t count = b->nbytes / (nbytes + 64);
    const uint64_t one = 1;
    count = count < BOXES ? count : BOXES;
    begin_list(b);
    for (uint64_t i = 0; i < count; i++) {
        gpu_copy c;
        memset(&c, 0, sizeof c);
        c.src = i * nbytes;
        c.dst = (i * 7919 % count) * (nbytes + 64);
        c.ndim = 1;
        c.sizes = &nbytes;
        c.src_strides = c.dst_strides = &one;
        c.from_nbytes = c.to_nbytes = 1;
        add(b, &c);
    }
    snprintf(name, sizeof name, "G6 %llu tensors of %llu B", (unsigned long long)count,
             (unsigned long long)nbytes);
    report(b, name, 2.0 * (double)(count * nbytes));
}

static void begin(bench *b, bool quick)
{
    struct cudaDeviceProp p;
    MUST(cudaGetDeviceProperties(&p, 0));
    b->nbytes = quick ? (size_t)256 << 20 : (size_t)8 << 30;
    MUST(cudaMalloc(&b->src, b->nbytes + 4096));
    MUST(cudaMalloc(&b->dst, b->nbytes + 4096));
    MUST(cudaMalloc(&b->boxes, BOXES * sizeof(gpu_box)));
    MUST(cudaMalloc(&b->dims, BOXES * 3 * sizeof(gpu_dim)));
    MUST(cudaMalloc(&b->lost, sizeof *b->lost));
    MUST(cudaMemset(b->src, 0x3C, b->nbytes));
    MUST(cudaMemset(b->lost, 0, sizeof *b->lost));
    b->boxes_here = (gpu_box *)malloc(BOXES * sizeof(gpu_box));
    b->dims_here = (gpu_dim *)malloc(BOXES * 3 * sizeof(gpu_dim));
    if (b->boxes_here == NULL || b->dims_here == NULL)
        exit(1);
    MUST(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
    MUST(cudaEventCreate(&b->begin));
    MUST(cudaEventCreate(&b->end));
    const double by_kernel = 2.0 * (double)b->nbytes / measure(b, launch_copy) / 1e9;
    const double by_memcpy = 2.0 * (double)b->nbytes / measure(b, launch_memcpy) / 1e9;
    b->reference = by_kernel > by_memcpy ? by_kernel : by_memcpy;
    printf("%s, %zu MiB each side; plain copy %.1f GB/s by a kernel, %.1f by cudaMemcpyAsync\n",
           p.name, b->nbytes >> 20, by_kernel, by_memcpy);
}

int main(int argc, char **argv)
{
    static const uint64_t runs[] = {16, 64, 512, 4096, 65536};
    static bench b;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        printf("skipped: no usable GPU\n");
        return SKIPPED;
    }
    begin(&b, argc > 1 && strcmp(argv[1], "--quick") == 0);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        columns(&b, runs[i], 0);
        columns(&b, runs[i], 2);
    }
    cast(&b, "G2 float32 to bfloat16", GPU_FLOAT32, 4, GPU_BFLOAT16, 2);
    cast(&b, "G2 bfloat16 to float32", GPU_BFLOAT16, 2, GPU_FLOAT32, 4);
    cast(&b, "G2 float32 to float16", GPU_FLOAT32, 4, GPU_FLOAT16, 2);
    cast(&b, "G2 float32 to float8_e4m3fn", GPU_FLOAT32, 4, GPU_FLOAT8_E4M3FN, 1);
    tensors(&b, 4096);
    tensors(&b, 65536);
    return 0;
}
