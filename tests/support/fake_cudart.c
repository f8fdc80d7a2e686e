#include "tests/support/fake_cudart.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gpu_cuda_launch.h"

/* Streams and events. */
typedef struct owned {
    int device;
} owned;

fake_cudart fake_cuda;
static _Thread_local int current;
static _Thread_local cudaError_t last;

/* As the driver's library has it. */
__attribute__((visibility("default"))) int cuDevicePrimaryCtxGetState(int device, unsigned *flags,
                                                                      int *active);
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = fake_cuda.has_context[device];
    return 0;
}

static cudaError_t result(cudaError_t e)
{
    if (e != cudaSuccess)
        last = e;
    return e;
}

/* Any call that works on a device. */
static cudaError_t begin(int device)
{
    fake_cuda.has_context[current] = true;
    if (fake_cuda.is_lost)
        return result(cudaErrorIllegalAddress);
    return result(device == current ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

static cudaError_t wait_for(int device)
{
    fake_cuda.is_lost = fake_cuda.is_lost || fake_cuda.is_late;
    return begin(device);
}

static int device_of(const void *what)
{
    return ((const owned *)what)->device;
}

static cudaError_t new_owned(void **out)
{
    const cudaError_t e = begin(current);
    owned *o = e == cudaSuccess ? malloc(sizeof *o) : NULL;
    if (o != NULL) {
        o->device = current;
        fake_cuda.live++;
        *out = o;
    }
    return e;
}

static cudaError_t end_owned(void *what)
{
    const cudaError_t e = begin(device_of(what));
    fake_cuda.live--;
    free(what);
    return e;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (fake_cuda.calls++ == 0)
        (void)snprintf(fake_cuda.connections, sizeof fake_cuda.connections, "%s",
                       text == NULL ? "" : text);
    *count = FAKE_CUDART_DEVICES;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    current = device;
    fake_cuda.has_context[device] = true; /* from CUDA 12 on */
    return result(fake_cuda.is_lost ? cudaErrorIllegalAddress : cudaSuccess);
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = last;
    last = fake_cuda.is_lost ? cudaErrorIllegalAddress : cudaSuccess;
    return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation ? "out of memory" : "an error";
}

const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOther";
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    memset(p, 0, sizeof *p);
    (void)snprintf(p->name, sizeof p->name, "fake %d", device);
    p->major = 9;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int capacity, int device)
{
    (void)snprintf(text, (size_t)capacity, "FFFF:%02X:00.0", device);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t nbytes, unsigned flags)
{
    (void)memory, (void)nbytes, (void)flags;
    if (fake_cuda.no_room)
        return result(cudaErrorMemoryAllocation);
    fake_cuda.live++;
    return begin(current);
}

cudaError_t cudaHostUnregister(void *memory)
{
    (void)memory;
    fake_cuda.live--;
    return begin(current);
}

cudaError_t(cudaMalloc)(void **memory, size_t nbytes)
{
    (void)nbytes;
    return fake_cuda.no_room ? result(cudaErrorMemoryAllocation) : new_owned(memory);
}

cudaError_t cudaFree(void *memory)
{
    return memory == NULL ? cudaSuccess : end_owned(memory);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return begin(current);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)flags;
    fake_cuda.priority = priority;
    return new_owned((void **)stream);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return wait_for(device_of(stream));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return end_owned(stream);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)to, (void)from, (void)nbytes, (void)kind;
    return begin(device_of(stream));
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t nbytes, cudaStream_t stream)
{
    (void)at, (void)value, (void)nbytes;
    return begin(device_of(stream));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    return new_owned((void **)event);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return begin(device_of(event) == device_of(stream) ? device_of(stream) : -1);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return wait_for(device_of(event));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return fake_cuda.not_done ? result(cudaErrorNotReady) : wait_for(device_of(event));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return end_owned(event);
}

int gpu_launch_batch(void *stream, const gpu_batch *what)
{
    (void)what;
    return begin(device_of(stream));
}

int gpu_launch_sum(void *stream, gpu_address at, uint64_t nbytes, gpu_address sum)
{
    (void)at, (void)nbytes, (void)sum;
    return begin(device_of(stream));
}

int gpu_launch_crc(void *stream, const gpu_crc *c, gpu_address crc)
{
    (void)c, (void)crc;
    return begin(device_of(stream));
}

int gpu_launch_check(void)
{
    return begin(current);
}
