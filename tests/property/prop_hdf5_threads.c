/* Threads, each with a context of its own, write and read HDF5 at once: files come out the same as
 * those of one thread, and no child that a reader forks stops because another thread was in libhdf5. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hdf5/hdf5.h"
#include "fsdpck.h"
#include "tests/support/job_parts.h"
#include "tests/support/must.h"
#include "tests/support/scratch.h"
#include "tests/support/stride.h"

enum { THREADS = 4, ROUNDS = 24 };

typedef struct worker {
    pthread_t thread;
    unsigned number, rounds;
    const char *scratch, *expected; /* the output of one thread alone */
} worker;

static fsdpck_context *new_context(void)
{
    fsdpck_context *ctx = fsdpck_context_new();
    MUST(ctx != NULL);
    return ctx;
}

static void must_do(fsdpck_status st, const char *path, const fsdpck_error *err)
{
    if (st != FSDPCK_OK)
        fprintf(stderr, "%s: %s\n", path, err->message);
    MUST(st == FSDPCK_OK);
}

static void write_file(const char *dst)
{
    char path[SCRATCH_BYTES];
    fsdpck_context *ctx = new_context();
    fsdpck_checkpoint *src;
    job_parts o = JOB_PARTS_INIT;
    fsdpck_error err;
    o.output.no_sync = 1;
    o.output.force = 1;
    o.work.threads = 1;
    o.output.format = "hdf5";
    fsdpck_error_init(&err);
    (void)scratch_path(path, getenv("FIXTURES"), "quickstart");
    must_do(fsdpck_open(ctx, path, NULL, &src, &err), path, &err);
    must_do(job_parts_consolidate(ctx, src, dst, &o, NULL, &err), dst, &err);
    fsdpck_close(src);
    fsdpck_context_free(ctx);
}

static void read_file(const char *name)
{
    char path[SCRATCH_BYTES];
    fsdpck_context *ctx = new_context();
    fsdpck_info info = FSDPCK_INIT(fsdpck_info);
    fsdpck_checkpoint *src;
    fsdpck_error err;
    fsdpck_error_init(&err);
    (void)scratch_path(path, getenv("FIXTURES"), name);
    must_do(fsdpck_open(ctx, path, NULL, &src, &err), path, &err);
    fsdpck_get_info(src, &info);
    MUST(info.tensors > 0);
    fsdpck_close(src);
    fsdpck_context_free(ctx);
}

static bool are_equal(const char *a, const char *b)
{
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    int c, d;
    MUST(f != NULL && g != NULL);
    do {
        c = getc(f);
        d = getc(g);
    } while (c == d && c != EOF);
    fclose(f);
    fclose(g);
    return c == d;
}

/* Half of them write, half read; under a sanitizer all write, since the allocators of sanitizers, unlike
 * libc's, do not survive a fork while another thread is in them. */
static void *work(void *ctx)
{
    const worker *w = ctx;
    const bool writes = w->number % 2 == 0 || test_stride() > 1;
    char name[32], path[SCRATCH_BYTES];
    snprintf(name, sizeof name, "%u.h5", w->number);
    (void)scratch_path(path, w->scratch, name);
    for (unsigned i = 0; i < w->rounds; i++) {
        if (writes)
            write_file(path);
        else
            read_file("hdf5/types.h5");
    }
    if (writes)
        MUST(are_equal(path, w->expected));
    return NULL;
}

int main(void)
{
    char scratch[SCRATCH_BYTES], expected[SCRATCH_BYTES];
    worker workers[THREADS];
    if (strcmp(hdf5_built_state(), "built without HDF5") == 0)
        return 0;
    scratch_make(scratch);
    (void)scratch_path(expected, scratch, "alone.h5");
    write_file(expected);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (worker){.number = i,
                              .rounds = ROUNDS / test_stride(),
                              .scratch = scratch,
                              .expected = expected};
        MUST(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        MUST(pthread_join(workers[i].thread, NULL) == 0);
    scratch_remove(scratch);
    return 0;
}
