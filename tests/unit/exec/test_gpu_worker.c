#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/exec_harness.h"
#include "tests/support/fake_gpu.h"

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
    for (unsigned bodies = 0; bodies < 2; bodies++) {
        exec_harness *w = world(3000, false);
        new_gpu();
        f.bodies = bodies == 1;
        cr_assert_eq(run(w, true), FSDPCK_OK);
        cr_assert_eq(w->sums.gpu_tiles, (2760000 + 3003 + 32767) / 32768);
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
    const uint32_t t = memory_source_add_tensor(&w->source, "w", DTYPE_BFLOAT16, 2, BOX(3000, 240));
    memory_source_add_chunk(&w->source, t, BOX(0, 0), BOX(3000, 240), &(memory_layout){0});
    memory_source_seal(&w->source);
    const uint32_t x = exec_harness_add_target(w, t, "x", DTYPE_FLOAT32);
    for (uint32_t k = 0; k < 6; k++)
        exec_harness_add_chunk(w, x, k % 2, BOX(0, 40 * k), BOX(3000, 40));
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 4096);
    exec_harness_expect(w);
    return w;
}

Test(engine_gpu, fills_bundles)
{
    exec_harness *w = columns();
    for (uint64_t k = 0; k < 4; k++) {
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

Test(engine_gpu, whatever_call_fails_is_the_end_or_left_to_threads)
{
    exec_harness *w = world(200, false);
    uint64_t count = 1000;
    for (uint64_t k = 0; k <= count; k++) {
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
    for (uint64_t k = 1; k < 12; k++) {
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
    for (uint64_t k = 1; k < 20; k++) {
        new_gpu();
        w->source.fail_read = k;
        atomic_store(&w->source.reads, 0);
        cr_assert_eq(run(w, k % 2 == 0), FSDPCK_IO);
        cr_assert_neq(err.tensor[0], '\0');
        fake_gpu_release(&f);
    }
    exec_harness_free(w);
}
