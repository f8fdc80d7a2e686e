/* A device through the CUDA runtime, which is linked in. Without a driver gpu_open reports that,
 * and the program runs. The driver only needs to load the runtime. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "kernels/gpu_cuda_launch.h"

#define HOST_ALIGN 4096u

typedef struct cuda_gpu {
    gpu base;
} cuda_gpu;

struct gpu_stream {
    gpu *gpu;
    cudaStream_t stream;
    cudaEvent_t events[GPU_MARKS]; /* NULL: never set */
};

static fsdpck_status failed(int code, const char *what, fsdpck_error *err)
{
    if (code == cudaSuccess)
        return FSDPCK_OK;
    const cudaError_t e = (cudaError_t)code;
    (void)cudaGetLastError(); /* so that later calls of this thread do not report it again */
    error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE, "%s failed on the GPU: %s (%s)", what,
              cudaGetErrorString(e), cudaGetErrorName(e));
    error_next(err, e == cudaErrorMemoryAllocation
                        ? "reduce --memory or --threads, or omit --engine"
                        : "omit --engine to run without the GPU");
    return FSDPCK_DEVICE;
}

/* Each thread has its own current device. */
static fsdpck_status use(const gpu *g, fsdpck_error *err)
{
    return failed(cudaSetDevice((int)g->index), "choosing the device", err);
}

static void cuda_close(gpu *g)
{
    free(g);
}

static fsdpck_status cuda_host_new(gpu *g, uint64_t nbytes, void **memory, fsdpck_error *err)
{
    *memory = NULL;
    RETURN_IF(use(g, err));
    nbytes += (HOST_ALIGN - nbytes % HOST_ALIGN) % HOST_ALIGN;
    void *p = aligned_alloc(HOST_ALIGN, nbytes);
    if (p == NULL)
        return error_set_nomem(err, nbytes);
    const fsdpck_status st =
        failed(cudaHostRegister(p, nbytes, cudaHostRegisterPortable), "pinning memory", err);
    if (st != FSDPCK_OK)
        free(p);
    else
        *memory = p;
    return st;
}

static void cuda_host_free(gpu *g, void *memory)
{
    if (memory == NULL)
        return;
    (void)use(g, NULL);
    (void)cudaHostUnregister(memory);
    free(memory);
}

static fsdpck_status cuda_device_new(gpu *g, uint64_t nbytes, gpu_address *memory,
                                     fsdpck_error *err)
{
    void *p = NULL;
    *memory = 0;
    RETURN_IF(use(g, err));
    RETURN_IF(failed(cudaMalloc(&p, nbytes), "taking device memory", err));
    *memory = (gpu_address)(uintptr_t)p;
    return FSDPCK_OK;
}

static void cuda_device_free(gpu *g, gpu_address memory)
{
    (void)use(g, NULL);
    (void)cudaFree((void *)(uintptr_t)memory);
}

static fsdpck_status cuda_stream_new(gpu *g, gpu_stream **out, fsdpck_error *err)
{
    *out = NULL;
    RETURN_IF(use(g, err));
    gpu_stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set_nomem(err, sizeof *s);
    s->gpu = g;
    const fsdpck_status st =
        failed(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "a new stream", err);
    if (st != FSDPCK_OK)
        free(s);
    else
        *out = s;
    return st;
}

static void cuda_stream_free(gpu_stream *s)
{
    if (s == NULL)
        return;
    (void)use(s->gpu, NULL);
    (void)cudaStreamSynchronize(s->stream);
    for (unsigned i = 0; i < GPU_MARKS; i++)
        if (s->events[i] != NULL)
            (void)cudaEventDestroy(s->events[i]);
    (void)cudaStreamDestroy(s->stream);
    free(s);
}

static fsdpck_status copy(gpu_stream *s, void *to, const void *from, uint64_t nbytes, int kind,
                          fsdpck_error *err)
{
    RETURN_IF(use(s->gpu, err));
    return failed(
        cudaMemcpyAsync(to, from, nbytes, (enum cudaMemcpyKind)kind, s->stream),
        kind == cudaMemcpyHostToDevice ? "a copy to the device" : "a copy from the device", err);
}

static fsdpck_status cuda_copy_in(gpu_stream *s, gpu_address to, const void *from, uint64_t nbytes,
                                  fsdpck_error *err)
{
    return copy(s, (void *)(uintptr_t)to, from, nbytes, cudaMemcpyHostToDevice, err);
}

static fsdpck_status cuda_copy_out(gpu_stream *s, void *to, gpu_address from, uint64_t nbytes,
                                   fsdpck_error *err)
{
    return copy(s, to, (const void *)(uintptr_t)from, nbytes, cudaMemcpyDeviceToHost, err);
}

static fsdpck_status cuda_zero(gpu_stream *s, gpu_address at, uint64_t nbytes, fsdpck_error *err)
{
    RETURN_IF(use(s->gpu, err));
    return failed(cudaMemsetAsync((void *)(uintptr_t)at, 0, nbytes, s->stream), "clearing memory",
                  err);
}

static fsdpck_status cuda_run_batch(gpu_stream *s, const gpu_batch *what, fsdpck_error *err)
{
    RETURN_IF(use(s->gpu, err));
    return failed(gpu_launch_batch(s->stream, what), "placing boxes", err);
}

static fsdpck_status cuda_add_sum(gpu_stream *s, gpu_address at, uint64_t nbytes, gpu_address sum,
                                  fsdpck_error *err)
{
    RETURN_IF(use(s->gpu, err));
    return failed(gpu_launch_sum(s->stream, at, nbytes, sum), "a sum", err);
}

static fsdpck_status cuda_mark(gpu_stream *s, unsigned mark, fsdpck_error *err)
{
    RETURN_IF(use(s->gpu, err));
    /* Blocking: a waiting thread leaves its CPU to the threads that read and write. */
    if (s->events[mark] == NULL)
        RETURN_IF(failed(cudaEventCreateWithFlags(&s->events[mark],
                                                  cudaEventBlockingSync | cudaEventDisableTiming),
                         "a new event", err));
    return failed(cudaEventRecord(s->events[mark], s->stream), "an event", err);
}

static fsdpck_status cuda_wait(gpu_stream *s, unsigned mark, fsdpck_error *err)
{
    if (s->events[mark] == NULL)
        return FSDPCK_OK;
    RETURN_IF(use(s->gpu, err));
    return failed(cudaEventSynchronize(s->events[mark]), "submitted work", err);
}

static fsdpck_status cuda_is_done(gpu_stream *s, unsigned mark, bool *done, fsdpck_error *err)
{
    *done = true;
    if (s->events[mark] == NULL)
        return FSDPCK_OK;
    RETURN_IF(use(s->gpu, err));
    const cudaError_t e = cudaEventQuery(s->events[mark]);
    *done = e != cudaErrorNotReady;
    if (!*done)
        (void)cudaGetLastError();
    return *done ? failed(e, "submitted work", err) : FSDPCK_OK;
}

static void *cuda_stream_handle(gpu_stream *s)
{
    return s->stream;
}

static const gpu_calls cuda_calls = {
    .close = cuda_close,
    .host_new = cuda_host_new,
    .host_free = cuda_host_free,
    .device_new = cuda_device_new,
    .device_free = cuda_device_free,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .zero = cuda_zero,
    .place = cuda_run_batch,
    .add_sum = cuda_add_sum,
    .mark = cuda_mark,
    .wait = cuda_wait,
    .is_done = cuda_is_done,
    .stream_handle = cuda_stream_handle,
};

/* The reason why no GPU is usable, for users. */
static fsdpck_status no_device(int code, fsdpck_error *err)
{
    const cudaError_t e = (cudaError_t)code;
    int driver = 0;
    if (e == cudaSuccess || e == cudaErrorNoDevice)
        error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE,
                  "no usable GPU: the driver reports none");
    else if (e == cudaErrorInsufficientDriver &&
             (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0))
        error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE,
                  "no usable GPU: the CUDA driver is missing");
    else if (e == cudaErrorInsufficientDriver)
        error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE,
                  "no usable GPU: the driver supports CUDA up to %d.%d, this build requires %d.%d",
                  driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                  CUDART_VERSION % 1000 / 10);
    else
        error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE, "no usable GPU: %s (%s)",
                  cudaGetErrorString(e), cudaGetErrorName(e));
    error_next(err, "omit --engine: threads are as fast as the storage");
    return FSDPCK_DEVICE;
}

static fsdpck_status describe(gpu *g, fsdpck_error *err)
{
    struct cudaDeviceProp p;
    RETURN_IF(use(g, err));
    RETURN_IF(
        failed(cudaGetDeviceProperties(&p, (int)g->index), "reading the name of the device", err));
    (void)snprintf(g->name, sizeof g->name, "%.63s", p.name);
    g->memory_nbytes = p.totalGlobalMem;
    g->capability = (unsigned)(p.major * 10 + p.minor);
    memcpy(g->uuid, &p.uuid, sizeof g->uuid);
    if (gpu_launch_check() == cudaSuccess)
        return FSDPCK_OK;
    error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE,
              "this build has no code for the GPU '%s' (sm_%u)", g->name, g->capability);
    error_expected(err, "%s", gpu_built_description());
    error_next(err, "build with -DCMAKE_CUDA_ARCHITECTURES=%u, or omit --engine", g->capability);
    return FSDPCK_DEVICE;
}

fsdpck_status gpu_open(unsigned local_rank, gpu **out, fsdpck_error *err)
{
    int count = 0;
    *out = NULL;
    const cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess || count <= 0)
        return no_device(e, err);
    cuda_gpu *g = calloc(1, sizeof *g);
    if (g == NULL)
        return error_set_nomem(err, sizeof *g);
    g->base.calls = &cuda_calls;
    g->base.count = (unsigned)count;
    g->base.index = local_rank % (unsigned)count;
    const fsdpck_status st = describe(&g->base, err);
    if (st != FSDPCK_OK)
        free(g);
    else
        *out = &g->base;
    return st;
}

const char *gpu_built_name(void)
{
    return "cuda";
}

const char *gpu_built_description(void)
{
    return FSDPCK_CUDA_DESCRIPTION;
}
