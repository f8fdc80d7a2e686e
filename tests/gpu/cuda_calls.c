/* kernels/gpu_cuda.c against a runtime that is none: devices of threads, memory, errors. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gpu.h"
#include "tests/support/fake_cudart.h"
#include "tests/support/must.h"

#define NBYTES ((uint64_t)5 << 20)

static gpu *open_as(unsigned local_rank)
{
    gpu *g;
    fsdpck_error err;
    must_be_ok(gpu_open(local_rank, &g, &err), &err);
    return g;
}

/* Every call once. */
static void use_all(gpu *g)
{
    const gpu_calls *c = g->calls;
    fsdpck_error err;
    void *pinned;
    gpu_address device;
    gpu_stream *s;
    bool done;
    must_be_ok(c->host_new(g, NBYTES, &pinned, &err), &err);
    must_be_ok(c->device_new(g, NBYTES, &device, &err), &err);
    must_be_ok(c->stream_new(g, false, &s, &err), &err);
    must_be_ok(c->copy_in(s, device, pinned, NBYTES, &err), &err);
    must_be_ok(c->zero(s, device, 8, &err), &err);
    must_be_ok(c->place(s, &(gpu_batch){.tasks = 1}, &err), &err);
    must_be_ok(c->add_sum(s, device, 8, device, &err), &err);
    must_be_ok(c->add_crc(s, device + 3, 7, device, &err), &err);
    must_be_ok(c->copy_out(s, pinned, device, NBYTES, &err), &err);
    must_be_ok(c->mark(s, 0, &err), &err);
    must_be_ok(c->wait(s, 0, &err), &err);
    must_be_ok(c->is_done(s, 0, &done, &err), &err);
    MUST(done);
    c->stream_free(s);
    c->device_free(g, device);
    c->host_free(g, pinned, NBYTES);
    MUST(fake_cuda.live == 0);
}

static void *use_in_a_thread(void *ctx)
{
    use_all(ctx);
    return NULL;
}

/* A program that works on device 3 finds it current after every call. */
static void check_current_device(void)
{
    int now = -1;
    pthread_t thread;
    MUST(cudaSetDevice(3) == cudaSuccess);
    gpu *g = open_as(1);
    MUST(g->index == 1 && cudaGetDevice(&now) == cudaSuccess && now == 3);
    use_all(g);
    MUST(cudaGetDevice(&now) == cudaSuccess && now == 3);
    const int before = g->calls->enter(g);
    MUST(before == 3 && cudaGetDevice(&now) == cudaSuccess && now == 1);
    g->calls->leave(g, before);
    MUST(cudaGetDevice(&now) == cudaSuccess && now == 3);
    /* A new thread has device 0, without a user: no context is made for it. */
    MUST(pthread_create(&thread, NULL, use_in_a_thread, g) == 0);
    pthread_join(thread, NULL);
    MUST(!fake_cuda.has_context[0] && fake_cuda.has_context[1] && !fake_cuda.has_context[2]);
    g->calls->close(g);
}

static void check_queues(const char *set, const char *want)
{
    fake_cuda.calls = 0;
    MUST(set == NULL ? unsetenv("CUDA_DEVICE_MAX_CONNECTIONS") == 0
                     : setenv("CUDA_DEVICE_MAX_CONNECTIONS", set, 1) == 0);
    gpu *g = open_as(0);
    g->calls->close(g);
    MUST(strcmp(fake_cuda.connections, want) == 0);
}

static void check_priorities(void)
{
    gpu *g = open_as(0);
    for (unsigned urgent = 0; urgent < 2; urgent++) {
        gpu_stream *s;
        fsdpck_error err;
        must_be_ok(g->calls->stream_new(g, urgent == 1, &s, &err), &err);
        MUST(fake_cuda.priority == (urgent == 1 ? -5 : 0));
        g->calls->stream_free(s);
    }
    g->calls->close(g);
}

/* Of the mapping that has this address: what /proc/self/smaps says. */
static bool has_flag(const void *memory, const char *flag)
{
    char line[512];
    bool inside = false, found = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    MUST(f != NULL);
    while (fgets(line, sizeof line, f) != NULL) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            inside = begin <= (uintptr_t)memory && (uintptr_t)memory < end;
        if (inside && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, flag) != NULL;
    }
    fclose(f);
    return found;
}

/* Pages of their own, large ones where the system has them. */
static void check_pinned_memory(void)
{
    gpu *g = open_as(0);
    fsdpck_error err;
    void *pinned;
    must_be_ok(g->calls->host_new(g, NBYTES, &pinned, &err), &err);
    MUST((uintptr_t)pinned % 4096 == 0);
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (f != NULL) {
        MUST(has_flag(pinned, " hg"));
        fclose(f);
    }
    memset(pinned, 1, NBYTES);
    g->calls->host_free(g, pinned, NBYTES);
    g->calls->host_free(g, NULL, NBYTES);
    g->calls->device_free(g, 0);
    g->calls->stream_free(NULL);
    g->calls->close(g);
}

/* A failure is reported once; later calls of the thread do not find it. */
static void check_errors(void)
{
    gpu *g = open_as(0);
    fsdpck_error err;
    void *pinned;
    gpu_address device;
    gpu_stream *s;
    bool done;
    fake_cuda.no_room = true;
    MUST(g->calls->host_new(g, NBYTES, &pinned, &err) == FSDPCK_DEVICE && pinned == NULL);
    MUST(g->calls->device_new(g, NBYTES, &device, &err) == FSDPCK_DEVICE && device == 0);
    MUST(strstr(err.next, "--memory") != NULL && cudaGetLastError() == cudaSuccess);
    fake_cuda.no_room = false;
    must_be_ok(g->calls->stream_new(g, false, &s, &err), &err);
    must_be_ok(g->calls->mark(s, 0, &err), &err);
    fake_cuda.not_done = true;
    must_be_ok(g->calls->is_done(s, 0, &done, &err), &err);
    MUST(!done && cudaGetLastError() == cudaSuccess);
    fake_cuda.not_done = false;
    /* Work that fails late: every later call fails too, and what frees does not stop at it. */
    fake_cuda.is_late = true;
    must_be_ok(g->calls->zero(s, 0, 8, &err), &err);
    MUST(g->calls->wait(s, 0, &err) == FSDPCK_DEVICE);
    MUST(g->calls->zero(s, 0, 8, &err) == FSDPCK_DEVICE);
    MUST(g->calls->device_new(g, NBYTES, &device, &err) == FSDPCK_DEVICE);
    g->calls->stream_free(s);
    MUST(fake_cuda.live == 0);
    g->calls->close(g);
}

int main(void)
{
    check_current_device();
    check_queues(NULL, "32");
    check_queues("4", "4");
    check_priorities();
    check_pinned_memory();
    check_errors();
    return 0;
}
