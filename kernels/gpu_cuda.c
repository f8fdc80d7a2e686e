/* A device through the CUDA runtime, which is linked in. Without a driver gpu_open reports that,
 * and the program runs. The driver only needs to load the runtime. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/platform.h"
#include "base/status.h"
#include "kernels/gpu_cuda_launch.h"

typedef struct cuda_gpu {
    gpu base;
    int node; /* of its memory controller's processor; -1: unknown */
    /* cuDevicePrimaryCtxGetState; NULL: the driver has none. */
    int (*context_state)(int device, unsigned *flags, int *active);
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

static cuda_gpu *own(gpu *g)
{
    return (cuda_gpu *)(void *)g;
}

static bool has_context(const cuda_gpu *g, int device)
{
    unsigned flags;
    int active = 0;
    return g->context_state != NULL && g->context_state(device, &flags, &active) == 0 && active;
}

/* Each thread has its own current device, which belongs to the calling program in its threads. */
static fsdpck_status enter(gpu *g, int *before, fsdpck_error *err)
{
    if (cudaGetDevice(before) != cudaSuccess)
        *before = (int)g->index;
    if (*before == (int)g->index)
        return FSDPCK_OK;
    return failed(cudaSetDevice((int)g->index), "choosing the device", err);
}

/* Returns st. A device without a context stays unused: to choose it would make one. */
static fsdpck_status leave(gpu *g, int before, fsdpck_status st)
{
    if (before != (int)g->index && has_context(own(g), before))
        (void)cudaSetDevice(before);
    return st;
}

static int cuda_enter(gpu *g)
{
    int before = (int)g->index;
    (void)enter(g, &before, NULL);
    return before;
}

static void cuda_leave(gpu *g, int before)
{
    (void)leave(g, before, FSDPCK_OK);
}

static void cuda_close(gpu *g)
{
    free(g);
}

static fsdpck_status cuda_host_new(gpu *g, uint64_t nbytes, void **memory, fsdpck_error *err)
{
    int before;
    *memory = NULL;
    RETURN_IF(enter(g, &before, err));
    void *p = platform_pages_new(nbytes, own(g)->node);
    if (p == NULL)
        return leave(g, before, error_set_nomem(err, nbytes));
    const fsdpck_status st =
        failed(cudaHostRegister(p, nbytes, cudaHostRegisterPortable), "pinning memory", err);
    if (st != FSDPCK_OK)
        platform_pages_free(p, nbytes);
    else
        *memory = p;
    return leave(g, before, st);
}

static void cuda_host_free(gpu *g, void *memory, uint64_t nbytes)
{
    if (memory == NULL)
        return;
    const int before = cuda_enter(g);
    (void)failed(cudaHostUnregister(memory), "unpinning memory", NULL);
    platform_pages_free(memory, nbytes);
    cuda_leave(g, before);
}

static fsdpck_status cuda_device_new(gpu *g, uint64_t nbytes, gpu_address *memory,
                                     fsdpck_error *err)
{
    void *p = NULL;
    int before;
    *memory = 0;
    RETURN_IF(enter(g, &before, err));
    const fsdpck_status st = failed(cudaMalloc(&p, nbytes), "taking device memory", err);
    *memory = (gpu_address)(uintptr_t)p;
    return leave(g, before, st);
}

static void cuda_device_free(gpu *g, gpu_address memory)
{
    const int before = cuda_enter(g);
    (void)failed(cudaFree((void *)(uintptr_t)memory), "giving back device memory", NULL);
    cuda_leave(g, before);
}

static fsdpck_status new_stream(gpu_stream *s, bool urgent, fsdpck_error *err)
{
    int least = 0, greatest = 0;
    RETURN_IF(failed(cudaDeviceGetStreamPriorityRange(&least, &greatest), "a new stream", err));
    return failed(
        cudaStreamCreateWithPriority(&s->stream, cudaStreamNonBlocking, urgent ? greatest : least),
        "a new stream", err);
}

static fsdpck_status cuda_stream_new(gpu *g, bool urgent, gpu_stream **out, fsdpck_error *err)
{
    int before;
    *out = NULL;
    gpu_stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set_nomem(err, sizeof *s);
    s->gpu = g;
    fsdpck_status st = enter(g, &before, err);
    if (st == FSDPCK_OK)
        st = leave(g, before, new_stream(s, urgent, err));
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
    gpu *g = s->gpu;
    const int before = cuda_enter(g);
    (void)failed(cudaStreamSynchronize(s->stream), "submitted work", NULL);
    for (unsigned i = 0; i < GPU_MARKS; i++)
        if (s->events[i] != NULL)
            (void)failed(cudaEventDestroy(s->events[i]), "an event", NULL);
    (void)failed(cudaStreamDestroy(s->stream), "a stream", NULL);
    free(s);
    cuda_leave(g, before);
}

static fsdpck_status copy(gpu_stream *s, void *to, const void *from, uint64_t nbytes, int kind,
                          fsdpck_error *err)
{
    int before;
    RETURN_IF(enter(s->gpu, &before, err));
    return leave(
        s->gpu, before,
        failed(cudaMemcpyAsync(to, from, nbytes, (enum cudaMemcpyKind)kind, s->stream),
               kind == cudaMemcpyHostToDevice ? "a copy to the device" : "a copy from the device",
               err));
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
    int before;
    RETURN_IF(enter(s->gpu, &before, err));
    return leave(s->gpu, before,
                 failed(cudaMemsetAsync((void *)(uintptr_t)at, 0, nbytes, s->stream),
                        "clearing memory", err));
}

static fsdpck_status cuda_run_batch(gpu_stream *s, const gpu_batch *what, fsdpck_error *err)
{
    int before;
    RETURN_IF(enter(s->gpu, &before, err));
    return leave(s->gpu, before, failed(gpu_launch_batch(s->stream, what), "placing boxes", err));
}

static fsdpck_status cuda_add_sum(gpu_stream *s, gpu_address at, uint64_t nbytes, gpu_address sum,
                                  fsdpck_error *err)
{
    int before;
    RETURN_IF(enter(s->gpu, &before, err));
    return leave(s->gpu, before, failed(gpu_launch_sum(s->stream, at, nbytes, sum), "a sum", err));
}

static fsdpck_status cuda_add_crc(gpu_stream *s, gpu_address at, uint64_t nbytes, gpu_address crc,
                                  fsdpck_error *err)
{
    gpu_crc c;
    int before;
    if (!gpu_crc_prepare(&c, at, nbytes))
        return FAIL(err, DEVICE, NONE, "range is too large for a CRC on the GPU");
    RETURN_IF(enter(s->gpu, &before, err));
    return leave(s->gpu, before, failed(gpu_launch_crc(s->stream, &c, crc), "a CRC", err));
}

/* Blocking: a waiting thread leaves its CPU to the threads that read and write. */
static fsdpck_status set_mark(gpu_stream *s, unsigned mark, fsdpck_error *err)
{
    if (s->events[mark] == NULL)
        RETURN_IF(failed(cudaEventCreateWithFlags(&s->events[mark],
                                                  cudaEventBlockingSync | cudaEventDisableTiming),
                         "a new event", err));
    return failed(cudaEventRecord(s->events[mark], s->stream), "an event", err);
}

static fsdpck_status cuda_mark(gpu_stream *s, unsigned mark, fsdpck_error *err)
{
    int before;
    RETURN_IF(enter(s->gpu, &before, err));
    return leave(s->gpu, before, set_mark(s, mark, err));
}

static fsdpck_status cuda_wait(gpu_stream *s, unsigned mark, fsdpck_error *err)
{
    int before;
    if (s->events[mark] == NULL)
        return FSDPCK_OK;
    RETURN_IF(enter(s->gpu, &before, err));
    return leave(s->gpu, before,
                 failed(cudaEventSynchronize(s->events[mark]), "submitted work", err));
}

static fsdpck_status cuda_is_done(gpu_stream *s, unsigned mark, bool *done, fsdpck_error *err)
{
    int before;
    *done = true;
    if (s->events[mark] == NULL)
        return FSDPCK_OK;
    RETURN_IF(enter(s->gpu, &before, err));
    const cudaError_t e = cudaEventQuery(s->events[mark]);
    *done = e != cudaErrorNotReady;
    if (!*done)
        (void)cudaGetLastError();
    return leave(s->gpu, before, *done ? failed(e, "submitted work", err) : FSDPCK_OK);
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
    .add_crc = cuda_add_crc,
    .mark = cuda_mark,
    .wait = cuda_wait,
    .is_done = cuda_is_done,
    .stream_handle = cuda_stream_handle,
    .enter = cuda_enter,
    .leave = cuda_leave,
};

/* The reason why no GPU is usable, for users. */
static fsdpck_status no_device(int code, fsdpck_error *err)
{
    const cudaError_t e = (cudaError_t)code;
    int driver = 0;
    (void)cudaGetLastError();
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
    char address[32]; /* of its bus */
    RETURN_IF(
        failed(cudaGetDeviceProperties(&p, (int)g->index), "reading the name of the device", err));
    (void)snprintf(g->name, sizeof g->name, "%.63s", p.name);
    g->capability = (unsigned)(p.major * 10 + p.minor);
    memcpy(g->uuid, &p.uuid, sizeof g->uuid);
    if (failed(cudaDeviceGetPCIBusId(address, sizeof address, (int)g->index), "an address", NULL) ==
        FSDPCK_OK)
        own(g)->node = platform_device_node(address);
    if (gpu_launch_check() == cudaSuccess)
        return FSDPCK_OK;
    (void)cudaGetLastError();
    error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE,
              "this build has no code for the GPU '%s' (sm_%u)", g->name, g->capability);
    error_expected(err, "%s", gpu_built_description());
    error_next(err, "build with -DCMAKE_CUDA_ARCHITECTURES=%u, or omit --engine", g->capability);
    return FSDPCK_DEVICE;
}

static void find_context_state(cuda_gpu *g)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == NULL)
        return;
    *(void **)(void *)&g->context_state = dlsym(driver, "cuDevicePrimaryCtxGetState");
    dlclose(driver); /* the runtime keeps it */
}

/* Streams share the device's queues, 8 of them unless the environment has a number: work would wait for
 * that of other streams. */
#define MOST_QUEUES "32"

fsdpck_status gpu_open(unsigned local_rank, gpu **out, fsdpck_error *err)
{
    int count = 0, before;
    *out = NULL;
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", MOST_QUEUES, 0);
    const cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess || count <= 0)
        return no_device(e, err);
    cuda_gpu *g = calloc(1, sizeof *g);
    if (g == NULL)
        return error_set_nomem(err, sizeof *g);
    g->base.calls = &cuda_calls;
    g->base.count = (unsigned)count;
    g->base.index = local_rank % (unsigned)count;
    g->node = -1;
    find_context_state(g);
    fsdpck_status st = enter(&g->base, &before, err);
    if (st == FSDPCK_OK)
        st = leave(&g->base, before, describe(&g->base, err));
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
