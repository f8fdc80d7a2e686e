#include "tests/support/device_memory.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/must.h"

/* Through pinned memory, from or to `bytes`. */
static void copy(gpu *g, gpu_address at, void *bytes, uint64_t nbytes, bool in)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    gpu_stream *s;
    void *pinned;
    must_be_ok(g->calls->host_new(g, nbytes + 1, &pinned, &err), &err);
    must_be_ok(g->calls->stream_new(g, false, &s, &err), &err);
    if (in)
        memcpy(pinned, bytes, nbytes);
    must_be_ok(in ? g->calls->copy_in(s, at, pinned, nbytes, &err)
                  : g->calls->copy_out(s, pinned, at, nbytes, &err),
               &err);
    must_be_ok(g->calls->mark(s, 0, &err), &err);
    must_be_ok(g->calls->wait(s, 0, &err), &err);
    if (!in)
        memcpy(bytes, pinned, nbytes);
    g->calls->stream_free(s);
    g->calls->host_free(g, pinned, nbytes + 1);
}

void *device_memory_new(gpu *g, const void *bytes, uint64_t nbytes)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    gpu_address at;
    if (g == NULL) {
        void *memory = malloc(nbytes);
        must(memory != NULL || nbytes == 0, "no memory");
        if (nbytes > 0)
            memcpy(memory, bytes, nbytes);
        return memory;
    }
    must_be_ok(g->calls->device_new(g, nbytes + 1, &at, &err), &err);
    if (nbytes > 0)
        copy(g, at, (void *)(uintptr_t)bytes, nbytes, true);
    return (void *)(uintptr_t)at;
}

void device_memory_take(gpu *g, void *memory, void *bytes, uint64_t nbytes)
{
    if (g == NULL && nbytes > 0)
        memcpy(bytes, memory, nbytes);
    else if (nbytes > 0)
        copy(g, (uintptr_t)memory, bytes, nbytes, false);
    device_memory_free(g, memory);
}

void device_memory_free(gpu *g, void *memory)
{
    if (g == NULL)
        free(memory);
    else
        g->calls->device_free(g, (uintptr_t)memory);
}
