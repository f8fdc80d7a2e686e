/* nccl_check: NCCL with one rank that exchanges with itself. Exit status 77 where there is no GPU or no
 * NCCL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/nccl_exchange.h"
#include "tests/support/must.h"

#define NBYTES  ((size_t)3000001)
#define SKIPPED 77

typedef struct asked {
    gpu *g;
    gpu_stream *s;
} asked;

static bool is_done(void *ctx)
{
    const asked *a = ctx;
    bool done;
    fsdpck_error err;
    must_be_ok(a->g->calls->is_done(a->s, 0, &done, &err), &err);
    return done;
}

static void exchange(gpu *g, gpu_stream *s, nccl_comm *c)
{
    fsdpck_error err;
    gpu_address device;
    void *memory;
    must_be_ok(g->calls->host_new(g, 2 * NBYTES, &memory, &err), &err);
    must_be_ok(g->calls->device_new(g, 2 * NBYTES, &device, &err), &err);
    uint8_t *bytes = memory;
    for (size_t i = 0; i < NBYTES; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    memset(bytes + NBYTES, 0, NBYTES);
    const nccl_transfer transfers[] = {{device, NBYTES, 0, false},
                                       {device + NBYTES, NBYTES, 0, true}};
    must_be_ok(g->calls->copy_in(s, device, bytes, NBYTES, &err), &err);
    must_be_ok(nccl_exchange(c, transfers, 2, g->calls->stream_handle(s), &err), &err);
    must_be_ok(g->calls->copy_out(s, bytes + NBYTES, device + NBYTES, NBYTES, &err), &err);
    must_be_ok(g->calls->mark(s, 0, &err), &err);
    asked a = {g, s};
    must_be_ok(nccl_wait(c, is_done, &a, &err), &err);
    if (memcmp(bytes, bytes + NBYTES, NBYTES) != 0) {
        fprintf(stderr, "nccl_check: other bytes came back\n");
        exit(1);
    }
    g->calls->device_free(g, device);
    g->calls->host_free(g, memory, 2 * NBYTES);
}

int main(void)
{
    const nccl_watch watch = {.timeout_seconds = 60};
    fsdpck_error err;
    uint8_t id[NCCL_ID_NBYTES];
    gpu *g;
    gpu_stream *s;
    nccl *n;
    nccl_comm *c;
    if (gpu_open(0, &g, &err) != FSDPCK_OK) {
        printf("skipped: %s\n", err.message);
        return SKIPPED;
    }
    if (nccl_load(NULL, &n, &err) != FSDPCK_OK) {
        printf("skipped: %s\n", err.message);
        return SKIPPED;
    }
    must_be_ok(g->calls->stream_new(g, true, &s, &err), &err);
    const int before = g->calls->enter(g);
    must_be_ok(nccl_make_id(n, id, &err), &err);
    must_be_ok(nccl_join(n, id, 0, 1, &watch, &c, &err), &err);
    exchange(g, s, c);
    nccl_leave(&c);
    g->calls->leave(g, before);
    g->calls->stream_free(s);
    printf("%s: NCCL %u, one rank\n", g->name, nccl_version(n));
    nccl_unload(n);
    g->calls->close(g);
    return 0;
}
