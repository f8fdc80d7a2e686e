#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "exec/gpu/gpu_worker.h"
#include "tests/support/exec_harness.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/stride.h"

#define BOX(...) ((const uint64_t[]){__VA_ARGS__})

/* bfloat16 [rows, cols] in column shards, wanted whole and as float32; float32 in rows, as it is. */
static exec_harness *world(uint64_t rows, bool stream)
{
    exec_harness *w = exec_harness_new(2, 1);
    const uint32_t a = memory_source_add_tensor(&w->source, "a", DTYPE_BFLOAT16, 2, BOX(rows, 120));
    for (uint32_t s = 0; s < 3; s++)
        memory_source_add_chunk(
            &w->source, a, BOX(0, 40 * s), BOX(rows, 40),
            &(memory_layout){.file = s % 2, .gap_nbytes = 33, .swap = s == 1, .stream = stream});
    const uint32_t b = memory_source_add_tensor(&w->source, "b", DTYPE_FLOAT32, 2, BOX(rows, 50));
    memory_source_add_chunk(&w->source, b, BOX(0, 0), BOX(rows, 50), &(memory_layout){0});
    memory_source_seal(&w->source);
    exec_harness_add_whole(w, a, 0, DTYPE_BFLOAT16);
    const uint32_t cast = exec_harness_add_target(w, a, "cast", DTYPE_FLOAT32);
    exec_harness_add_chunk(w, cast, 0, BOX(0, 0), BOX(rows, 120));
    exec_harness_add_whole(w, b, 0, DTYPE_FLOAT32);
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 1001);
    w->to.want_crc = true;
    exec_harness_expect(w);
    return w;
}

typedef struct words {
    unsigned warnings;
    char text[256];
} words;

static void on_log(void *ctx, const log_line *line)
{
    words *to = ctx;
    if (line->level != LOG_WARNING)
        return;
    to->warnings++;
    (void)snprintf(to->text, sizeof to->text, "%s", line->text);
}

static fake_gpu f;
static words seen;
static fsdpck_error err;

static void new_gpu(void)
{
    seen = (words){0};
    err = (fsdpck_error){0};
    fake_gpu_init(&f);
}

/* Of four runs: all, or one for each mode. */
static uint64_t first_of_four(void)
{
    new_gpu();
    const uint64_t first = test_stride() == 1 ? 0 : (uint64_t)f.mode + 1;
    fake_gpu_release(&f);
    return first;
}

/* The next number of a call: the mode chooses which are left out. */
static uint64_t next_of(uint64_t k)
{
    return k == 0 ? 1 + (uint64_t)f.mode % test_stride() : k + test_stride();
}

static fsdpck_status run(exec_harness *w, bool required)
{
    const logger log = {on_log, &seen};
    const exec_harness_options o = {.nthreads = 1,
                                    .tile_nbytes = 32768,
                                    .direct = EXEC_DIRECT_OFF,
                                    .gpu = &f.base,
                                    .gpu_required = required,
                                    .log = &log};
    return exec_harness_run(w, &o, &err);
}

Test(engine_gpu, fills_all_tiles_in_bounded_memory)
{
    for (uint64_t k = first_of_four(); k < 4; k += test_stride()) {
        exec_harness *w = world(3000, false);
        new_gpu();
        f.bodies = k % 2 == 1;
        f.mode = k < 2 ? FAKE_LAST : k == 2 ? FAKE_EAGER : FAKE_THREADS;
        cr_assert_eq(run(w, true), FSDPCK_OK);
        /* Up to the end of "cast": the float32 tensor is copied as it is. */
        cr_assert_eq(w->sums.gpu_tiles, (2160000 + 2002 + 32767) / 32768);
        /* Once for the output, once for digests alone. */
        cr_assert_leq(atomic_load(&f.device_nbytes), 2 * w->sums.buffer_nbytes + 4096);
        cr_assert_gt(atomic_load(&f.made[FAKE_PLACE]), w->sums.gpu_tiles);
        cr_assert_eq(seen.warnings, 0);
        fake_gpu_release(&f);
        exec_harness_free(w);
    }
}

Test(engine_gpu, streams_stay_with_threads)
{
    exec_harness *w = world(300, true);
    new_gpu();
    cr_assert_eq(run(w, true), FSDPCK_OK);
    cr_assert_eq(w->sums.streams, 3);
    cr_assert_leq(w->sums.gpu_tiles, 2); /* of b */
    fake_gpu_release(&f);
    exec_harness_free(w);
}

/* Columns out of rows: target chunks that are filled together. */
static exec_harness *columns(void)
{
    exec_harness *w = exec_harness_new(1, 2);
    const uint32_t t = memory_source_add_tensor(&w->source, "w", DTYPE_BFLOAT16, 2, BOX(1500, 240));
    memory_source_add_chunk(&w->source, t, BOX(0, 0), BOX(1500, 240), &(memory_layout){0});
    memory_source_seal(&w->source);
    const uint32_t x = exec_harness_add_target(w, t, "x", DTYPE_FLOAT32);
    for (uint32_t k = 0; k < 6; k++)
        exec_harness_add_chunk(w, x, k % 2, BOX(0, 40 * k), BOX(1500, 40));
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 4096);
    exec_harness_expect(w);
    return w;
}

Test(engine_gpu, fills_bundles)
{
    exec_harness *w = columns();
    for (uint64_t k = first_of_four(); k < 4; k += test_stride()) {
        new_gpu();
        f.bodies = k % 2 == 1;
        f.flip_at = k;
        f.flips = k > 0;
        const exec_harness_options o = {
            .nthreads = 2, .tile_nbytes = 1 << 20, .gpu = &f.base, .gpu_required = true};
        cr_assert_eq(exec_harness_run(w, &o, NULL), FSDPCK_OK);
        cr_assert_gt(w->sums.gpu_tiles, 1);
        cr_assert_float_eq(w->sums.read_amplification, 1, 1e-9);
        fake_gpu_release(&f);
        new_gpu();
        f.fail_at = 3 * 5 + k * 5;
        const exec_harness_options weak = {.nthreads = 2, .tile_nbytes = 1 << 20, .gpu = &f.base};
        cr_assert_eq(exec_harness_run(w, &weak, NULL), FSDPCK_OK);
        fake_gpu_release(&f);
    }
    exec_harness_free(w);
}

/* More members than the tile has room for: threads fill them in one pass, and the GPU other tiles. */
Test(engine_gpu, many_columns_are_read_once)
{
    exec_harness *w = exec_harness_new(1, 2);
    const uint32_t t = memory_source_add_tensor(&w->source, "w", DTYPE_BFLOAT16, 2, BOX(600, 480));
    memory_source_add_chunk(&w->source, t, BOX(0, 0), BOX(600, 480), &(memory_layout){0});
    memory_source_seal(&w->source);
    const uint32_t x = exec_harness_add_target(w, t, "x", DTYPE_FLOAT32);
    for (uint32_t k = 0; k < 48; k++)
        exec_harness_add_chunk(w, x, k % 2, BOX(0, 10 * k), BOX(600, 10));
    const uint32_t y = exec_harness_add_target(w, t, "y", DTYPE_FLOAT32);
    exec_harness_add_chunk(w, y, 0, BOX(0, 0), BOX(600, 480));
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 4096);
    exec_harness_expect(w);
    new_gpu();
    const exec_harness_options o = {.nthreads = 2,
                                    .memory_nbytes = (uint64_t)64 << 20,
                                    .tile_nbytes = 1 << 20,
                                    .gpu = &f.base,
                                    .gpu_required = true};
    cr_assert_eq(exec_harness_run(w, &o, NULL), FSDPCK_OK);
    cr_assert_gt(w->sums.gpu_tiles, 0);
    cr_assert_float_eq(w->sums.read_amplification, 1, 1e-9);
    fake_gpu_release(&f);
    exec_harness_free(w);
}

Test(engine_gpu, whatever_call_fails_is_the_end_or_left_to_threads)
{
    exec_harness *w = world(200, false);
    uint64_t count = 1000;
    for (uint64_t k = 0; k <= count; k = next_of(k)) {
        new_gpu();
        f.fail_at = k;
        const fsdpck_status st = run(w, true);
        if (k == 0)
            count = atomic_load(&f.made[FAKE_MARK]) + 30; /* past the first tiles */
        if (k == 0)
            cr_assert_eq(st, FSDPCK_OK);
        else
            cr_assert_eq(st, FSDPCK_DEVICE, "call %zu: %d", (size_t)k, st);
        fake_gpu_release(&f);
        new_gpu();
        f.fail_at = k;
        cr_assert_eq(run(w, false), FSDPCK_OK);
        cr_assert_eq(seen.warnings, k > 0);
        cr_assert(k == 0 || strstr(seen.text, "continuing with threads, without the GPU") != NULL);
        fake_gpu_release(&f);
    }
    exec_harness_free(w);
}

Test(engine_gpu, a_device_that_gives_wrong_bytes_is_found_at_once)
{
    exec_harness *w = world(200, false);
    new_gpu();
    f.wrong = true;
    cr_assert_eq(run(w, true), FSDPCK_DEVICE);
    cr_assert_str_eq(err.message, "GPU and CPU results differ");
    cr_assert_eq(run(w, false), FSDPCK_OK);
    cr_assert_eq(w->sums.gpu_tiles, 1); /* then it was dropped */
    fake_gpu_release(&f);
    exec_harness_free(w);
}

Test(engine_gpu, a_flipped_bit_is_never_written)
{
    exec_harness *w = world(200, false);
    for (uint64_t k = 1; k < 12; k += (test_stride() + 1) / 2) {
        for (uint64_t flips = 1; flips <= 100; flips += 99) {
            new_gpu();
            f.flip_at = k;
            f.flips = flips;
            const fsdpck_status st = run(w, true);
            /* Once: the tile is filled again. */
            cr_assert_eq(st, flips == 1 ? FSDPCK_OK : FSDPCK_DEVICE, "copy %zu", (size_t)k);
            cr_assert(st == FSDPCK_OK || strstr(err.message, "were corrupted twice") != NULL);
            fake_gpu_release(&f);
        }
    }
    exec_harness_free(w);
}

Test(engine_gpu, a_read_that_fails_is_an_error_of_reading)
{
    exec_harness *w = world(200, false);
    new_gpu();
    cr_assert_eq(run(w, true), FSDPCK_OK);
    fake_gpu_release(&f);
    const uint64_t reads = w->sums.reads;
    cr_assert_gt(reads, 8);
    for (uint64_t k = next_of(0); k <= reads; k = next_of(k)) {
        new_gpu();
        w->source.fail_read = k;
        atomic_store(&w->source.reads, 0);
        cr_assert_eq(run(w, k % 2 == 0), FSDPCK_IO);
        cr_assert_neq(err.tensor[0], '\0');
        fake_gpu_release(&f);
    }
    exec_harness_free(w);
}

/* Plain and converted tensors, 20 KB each in a tile of 1 MiB, at odd offsets too; plain ones at both ends. */
static exec_harness *mixed_world(void)
{
    exec_harness *w = exec_harness_new(1, 1);
    for (uint32_t k = 0; k < 9; k++) {
        const char name[] = {(char)('a' + k), '\0'};
        const uint32_t t = memory_source_add_tensor(
            &w->source, name, k % 4 < 2 ? DTYPE_FLOAT32 : DTYPE_BFLOAT16, 1, BOX(5000));
        memory_source_add_chunk(&w->source, t, BOX(0), BOX(5000), &(memory_layout){0});
    }
    memory_source_seal(&w->source);
    for (uint32_t t = 0; t < 9; t++)
        exec_harness_add_whole(w, t, 0, DTYPE_FLOAT32);
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 1001);
    exec_harness_expect(w);
    return w;
}

static fsdpck_status run_threads(exec_harness *w, unsigned nthreads, bool required)
{
    const logger log = {on_log, &seen};
    const exec_harness_options o = {.nthreads = nthreads,
                                    .memory_nbytes = (uint64_t)64 << 20,
                                    .tile_nbytes = 1 << 20,
                                    .gpu = &f.base,
                                    .gpu_required = required,
                                    .log = &log};
    return exec_harness_run(w, &o, &err);
}

Test(engine_gpu, plain_parts_of_a_tile_stay_with_threads)
{
    exec_harness *w = mixed_world();
    new_gpu();
    cr_assert_eq(run_threads(w, 1, true), FSDPCK_OK);
    cr_assert_eq(w->sums.gpu_tiles, 1);
    /* Twice, see exec_harness_run: the four bfloat16 tensors and lists of boxes; the bytes from the first
     * of them to the last, and counters. */
    cr_assert_leq(atomic_load(&f.in_nbytes), 2 * (4 * 10000 + 4096));
    cr_assert_leq(atomic_load(&f.out_nbytes), 2 * (6 * 20000 + 5 * 1001 + 4096));
    /* Elements that are converted lie on multiples of their size. */
    cr_assert_eq(atomic_load(&f.convert_align), 2);
    fake_gpu_release(&f);
    exec_harness_free(w);
}

Test(engine_gpu, threads_have_stacks_for_the_driver)
{
    exec_harness *w = world(1500, false);
    new_gpu();
    cr_assert_eq(run_threads(w, 4, true), FSDPCK_OK);
    cr_assert_gt(w->sums.workers, 1);
    cr_assert_geq(atomic_load(&f.stack_nbytes), 2 << 20);
    fake_gpu_release(&f);
    exec_harness_free(w);
}

/* The device is lost at some operation; a later wait finds it, in another stream too. */
Test(engine_gpu, an_operation_that_fails_late)
{
    exec_harness *w = world(200, false);
    for (uint64_t k = next_of(0); k < 24; k = next_of(k)) {
        new_gpu();
        f.late_fail_at = k;
        cr_assert_eq(run(w, true), FSDPCK_DEVICE, "operation %zu", (size_t)k);
        fake_gpu_release(&f);
        new_gpu();
        f.late_fail_at = k;
        cr_assert_eq(run(w, false), FSDPCK_OK);
        cr_assert_geq(seen.warnings, 1);
        fake_gpu_release(&f);
    }
    exec_harness_free(w);
}

Test(engine_gpu, no_room_on_the_device_or_for_pinned_memory)
{
    exec_harness *w = world(3000, false);
    for (unsigned k = 0; k < 2; k++)
        for (unsigned required = 0; required < 2; required++) {
            new_gpu();
            *(k == 0 ? &f.device_most : &f.pinned_most) = 4 << 20;
            cr_assert_eq(run_threads(w, 4, required == 1), required ? FSDPCK_DEVICE : FSDPCK_OK);
            cr_assert_not_null(strstr(required ? err.message : seen.text, "no more memory"));
            fake_gpu_release(&f);
        }
    exec_harness_free(w);
}

/* The checksums of messages are stored before the one wait for all of them. */
Test(gpu_worker, messages_take_one_wait)
{
    enum { NBYTES = 1000, SPAN = 4096 };
    static const gpu_worker_sum sums[] = {{0, 301, 304}, {512, NBYTES - 301, 1216}};
    const gpu_worker_out out = {.sums = sums, .sum_count = 2};
    const uint64_t nbytes = gpu_worker_host_nbytes(SPAN);
    uint8_t kinds[GPU_KINDS_NBYTES] = {0};
    uint8_t *buffer, copy[NBYTES];
    gpu_worker *w;
    gpu_address device;
    void *pinned;
    uint64_t lost;
    bool intact;
    new_gpu();
    const gpu_calls *calls = f.base.calls;
    cr_assert_eq(calls->host_new(&f.base, nbytes, &pinned, &err), FSDPCK_OK);
    cr_assert_eq(calls->device_new(&f.base, SPAN, &device, &err), FSDPCK_OK);
    cr_assert_eq(gpu_worker_new(&f.base, SPAN, SPAN, pinned, kinds, &w, &err), FSDPCK_OK);
    gpu_worker_set_output(w, device);
    cr_assert_eq(gpu_worker_begin(w, &err), FSDPCK_OK);
    cr_assert_eq(gpu_worker_reserve(w, NBYTES, 0, 2, 6, &buffer, &err), FSDPCK_OK);
    for (unsigned i = 0; i < NBYTES; i++)
        copy[i] = buffer[i] = (uint8_t)(i * 37 + i / 256);
    gpu_worker_put_run(w, 0, buffer, 301);
    gpu_worker_put_run(w, 512, buffer + 301, NBYTES - 301);
    const uint64_t waits = atomic_load(&f.made[FAKE_WAIT]);
    cr_assert_eq(gpu_worker_finish(w, &out, &lost, &intact, &err), FSDPCK_OK);
    cr_assert(intact);
    cr_assert_eq(atomic_load(&f.made[FAKE_WAIT]), waits + 1);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t sum, bytes[NBYTES / 8];
        memcpy(bytes, copy + (i == 0 ? 0 : 301), sums[i].nbytes);
        memcpy(&sum, fake_device_bytes(&f, device + sums[i].sum_at, sizeof sum), sizeof sum);
        cr_assert_eq(sum, gpu_sum(bytes, sums[i].nbytes));
    }
    gpu_worker_free(w);
    calls->device_free(&f.base, device);
    calls->host_free(&f.base, pinned, nbytes);
    fake_gpu_release(&f);
}

/* Workers that share them compare each kind once. */
Test(gpu_worker, a_kind_is_new_once)
{
    uint8_t kinds[GPU_KINDS_NBYTES] = {0};
    const uint64_t nbytes = gpu_worker_host_nbytes(4096);
    gpu_worker *workers[2];
    void *pinned[2];
    new_gpu();
    for (unsigned i = 0; i < 2; i++) {
        uint8_t *buffer;
        cr_assert_eq(f.base.calls->host_new(&f.base, nbytes, &pinned[i], &err), FSDPCK_OK);
        cr_assert_eq(gpu_worker_new(&f.base, 4096, 4096, pinned[i], kinds, &workers[i], &err),
                     FSDPCK_OK);
        cr_assert_eq(gpu_worker_begin(workers[i], &err), FSDPCK_OK);
        cr_assert_eq(gpu_worker_reserve(workers[i], 500, 0, 1, 3, &buffer, &err), FSDPCK_OK);
        gpu_worker_put_run(workers[i], 0, buffer, 500);
        cr_assert_eq(gpu_worker_had_new_kinds(workers[i]), i == 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        gpu_worker_free(workers[i]);
        f.base.calls->host_free(&f.base, pinned[i], nbytes);
    }
    fake_gpu_release(&f);
}
