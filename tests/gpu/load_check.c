/* load_check [--fake] CHECKPOINT...: fsdpck_load into memory of a GPU: the bytes of fsdpck_load into memory of the host,
 * for all tensors, and the time of both. Then fsdpck_open_memory of that memory of the GPU: the same bytes again, and a
 * file with the digests of that memory. Exit status 77 where there is no GPU. --fake stands in for one, to test this
 * program. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fsdpck_memory.h"
#include "fsdpck_verify.h"
#include "open/memory_checkpoint.h"
#include "run/load_internal.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/must.h"
#include "tests/support/scratch.h"

enum { ALIGN = 256, SKIPPED = 77 };

/* All tensors, one after the other in one allocation of each kind. */
typedef struct loading {
    fsdpck_load_tensor *tensors;
    size_t count;
    uint64_t nbytes;
    uint8_t *host, *back; /* back: pinned */
    gpu_address device;
} loading;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void list_tensors(const fsdpck_checkpoint *src, loading *l)
{
    fsdpck_info info = FSDPCK_INIT(fsdpck_info);
    fsdpck_get_info(src, &info);
    l->tensors = calloc(info.tensors + 1, sizeof *l->tensors);
    for (uint64_t i = 0; i < info.tensors; i++) {
        fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
        fsdpck_get_tensor(src, i, &t);
        l->tensors[i] = (fsdpck_load_tensor)FSDPCK_INIT(fsdpck_load_tensor);
        l->tensors[i].name = t.name;
        l->tensors[i].memory_nbytes = t.nbytes;
        l->nbytes += (t.nbytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    l->count = info.tensors;
}

/* Returns the seconds. g NULL: on the host. */
static double load_all(fsdpck_context *ctx, fsdpck_checkpoint *src, loading *l, gpu *g)
{
    fsdpck_error err;
    fsdpck_select_options select = FSDPCK_SELECT_OPTIONS_INIT;
    fsdpck_load_options options = FSDPCK_INIT(fsdpck_load_options);
    uintptr_t at = g == NULL ? (uintptr_t)l->host : (uintptr_t)l->device;
    for (size_t i = 0; i < l->count; i++) {
        l->tensors[i].memory = (void *)at;
        at += (l->tensors[i].memory_nbytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    select.part = FSDPCK_PART_ALL; /* the names that fsdpck_get_tensor returns */
    select.clean_names = FSDPCK_OFF;
    options.select = &select;
    const double begin = now();
    must_be_ok(load_with_gpu(ctx, src, l->tensors, l->count, &options, g, &err), &err);
    return now() - begin;
}

static void copy_back(loading *l, gpu *g)
{
    fsdpck_error err;
    gpu_stream *s;
    must_be_ok(g->calls->stream_new(g, false, &s, &err), &err);
    must_be_ok(g->calls->copy_out(s, l->back, l->device, l->nbytes, &err), &err);
    must_be_ok(g->calls->mark(s, 0, &err), &err);
    must_be_ok(g->calls->wait(s, 0, &err), &err);
    g->calls->stream_free(s);
}

static void compare(const loading *l, const char *path)
{
    uint64_t at = 0;
    for (size_t i = 0; i < l->count; i++) {
        const uint64_t nbytes = l->tensors[i].memory_nbytes;
        if (memcmp(l->host + at, l->back + at, nbytes) != 0) {
            fprintf(stderr, "load_check: %s: '%s' differs\n", path, l->tensors[i].name);
            exit(1);
        }
        at += (nbytes + ALIGN - 1) / ALIGN * ALIGN;
    }
}

/* What load_all put into memory of the GPU, as a checkpoint. */
static fsdpck_checkpoint *open_loaded(fsdpck_context *ctx, const fsdpck_checkpoint *src,
                                      const loading *l, gpu *g)
{
    fsdpck_error err;
    fsdpck_checkpoint *held;
    fsdpck_memory_tensor *entries = calloc(l->count + 1, sizeof *entries);
    for (size_t i = 0; i < l->count; i++) {
        fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
        fsdpck_get_tensor(src, i, &t);
        entries[i] = (fsdpck_memory_tensor)FSDPCK_INIT(fsdpck_memory_tensor);
        entries[i].name = t.name;
        entries[i].dtype = t.dtype;
        entries[i].ndim = t.ndim;
        entries[i].shape = t.shape;
        entries[i].memory = l->tensors[i].memory;
        entries[i].memory_nbytes = l->tensors[i].memory_nbytes;
    }
    must_be_ok(open_memory_with_gpu(ctx, entries, l->count, NULL, g, &held, &err), &err);
    free(entries);
    return held;
}

static uint64_t digest_all(fsdpck_context *ctx, fsdpck_checkpoint *src)
{
    fsdpck_error err;
    fsdpck_digests *d;
    fsdpck_digests_info info = FSDPCK_INIT(fsdpck_digests_info);
    must_be_ok(fsdpck_digests_new(ctx, src, NULL, &d, &err), &err);
    fsdpck_digests_get_info(d, &info);
    fsdpck_digests_free(d);
    return info.whole;
}

/* Returns the seconds of writing a file, whose digests must be those of `expected`. */
static double write_loaded(fsdpck_context *ctx, fsdpck_checkpoint *held, uint64_t expected)
{
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    fsdpck_error err;
    fsdpck_checkpoint *written;
    scratch_make(dir);
    const double begin = now();
    must_be_ok(fsdpck_consolidate(ctx, held, scratch_path(path, dir, "m.pt"), NULL, NULL, &err),
               &err);
    const double seconds = now() - begin;
    must_be_ok(fsdpck_open(ctx, path, NULL, &written, &err), &err);
    must(digest_all(ctx, written) == expected, "digests of the file differ");
    fsdpck_close(written);
    scratch_remove(dir);
    return seconds;
}

/* From memory of the GPU; the bytes of `back` again. */
static void check_loaded(fsdpck_context *ctx, const fsdpck_checkpoint *src, const char *path,
                         loading *l, gpu *g)
{
    fsdpck_checkpoint *held = open_loaded(ctx, src, l, g);
    memset(l->host, 0xEE, l->nbytes);
    const double host = load_all(ctx, held, l, NULL),
                 written = write_loaded(ctx, held, digest_all(ctx, held));
    compare(l, path);
    printf("%s: %.3f s from the GPU to the host, %.3f s to a file\n", path, host, written);
    fsdpck_close(held);
}

static void check(const char *path, gpu *g)
{
    fsdpck_error err;
    fsdpck_checkpoint *src;
    fsdpck_context *ctx = fsdpck_context_new();
    loading l = {0};
    void *pinned;
    must_be_ok(fsdpck_open(ctx, path, NULL, &src, &err), &err);
    list_tensors(src, &l);
    l.host = calloc(1, l.nbytes + 1);
    must_be_ok(g->calls->host_new(g, l.nbytes + 1, &pinned, &err), &err);
    must_be_ok(g->calls->device_new(g, l.nbytes + 1, &l.device, &err), &err);
    l.back = pinned;
    const double host = load_all(ctx, src, &l, NULL), device = load_all(ctx, src, &l, g);
    copy_back(&l, g);
    compare(&l, path);
    printf("%s: %zu tensors, %" PRIu64 " bytes: %.3f s to the host, %.3f s to the GPU\n", path,
           l.count, l.nbytes, host, device);
    check_loaded(ctx, src, path, &l, g);
    g->calls->device_free(g, l.device);
    g->calls->host_free(g, pinned, l.nbytes + 1);
    free(l.host);
    free(l.tensors);
    fsdpck_close(src);
    fsdpck_context_free(ctx);
}

int main(int argc, char **argv)
{
    const bool is_fake = argc > 1 && strcmp(argv[1], "--fake") == 0;
    fake_gpu fake;
    fsdpck_error err;
    gpu *g;
    if (is_fake) {
        fake_gpu_init(&fake);
        g = &fake.base;
    } else if (exec_open_gpu_at(0, &g, &err) != FSDPCK_OK) {
        fprintf(stderr, "load_check: %s\n", err.message);
        return SKIPPED;
    }
    for (int i = 1 + is_fake; i < argc; i++)
        check(argv[i], g);
    if (is_fake)
        fake_gpu_release(&fake);
    else
        exec_close_gpu(g);
    return 0;
}
