/* nccl_check [--fake]: NCCL with one rank that exchanges with itself, and which network NCCL has found: one
 * whose plugin does not load is replaced by TCP without a message. Exit status 77 where there is no GPU or
 * no NCCL. --fake stands in for a GPU, to test this program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/nccl_exchange.h"
#include "tests/support/fake_gpu.h"
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

/* NCCL's log goes to this file, unless the user wants it elsewhere. */
static bool keep_log(char *path)
{
    const int fd = getenv("NCCL_DEBUG_FILE") == NULL ? mkstemp(path) : -1;
    if (fd < 0)
        return false;
    close(fd);
    return setenv("NCCL_DEBUG", "INFO", 1) == 0 && setenv("NCCL_DEBUG_FILE", path, 1) == 0;
}

static void print_network(const char *path)
{
    static const char words[] = "Using network ";
    char line[1024];
    bool found = false;
    FILE *log = fopen(path, "r");
    while (log != NULL && fgets(line, sizeof line, log) != NULL) {
        const char *at = strstr(line, words);
        if (at != NULL && !found)
            printf("NCCL's network: %s", at + strlen(words));
        found = found || at != NULL;
    }
    if (!found)
        printf("NCCL's network: its log names none\n");
    if (log != NULL)
        fclose(log);
    (void)unlink(path);
}

static fsdpck_status open_gpu(bool faked, gpu **g, fsdpck_error *err)
{
    static fake_gpu fake;
    if (!faked)
        return gpu_open(0, g, err);
    fake_gpu_init(&fake);
    *g = &fake.base;
    return FSDPCK_OK;
}

int main(int argc, char **argv)
{
    char log[] = "/tmp/nccl_check.XXXXXX";
    const nccl_watch watch = {.timeout_seconds = 60};
    fsdpck_error err;
    uint8_t id[NCCL_ID_NBYTES];
    gpu *g;
    gpu_stream *s;
    nccl *n;
    nccl_comm *c;
    if (open_gpu(argc > 1 && strcmp(argv[1], "--fake") == 0, &g, &err) != FSDPCK_OK) {
        printf("skipped: %s\n", err.message);
        return SKIPPED;
    }
    const bool logs = keep_log(log);
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
    if (logs)
        print_network(log);
    g->calls->close(g);
    return 0;
}
