/* Matrices stored across, through plan and exec: any sizes, chunks, targets, tiles and threads. Every
 * byte of the output is that of its element, and in all runs the same.
 *
 * Arguments: first seed, number of seeds. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/exec_harness.h"
#include "tests/support/must.h"
#include "tests/support/random.h"

enum { SEEDS = 40 };

typedef struct shape {
    uint64_t state;
    unsigned ndim;
    uint64_t sizes[3];
} shape;

static uint64_t draw(shape *s, uint64_t below)
{
    return random_below(&s->state, below);
}

/* Experts, rows and columns: around the sizes of blocks, steps and tiles. */
static void draw_sizes(shape *s)
{
    static const uint64_t sizes[] = {1, 2, 31, 32, 33, 63, 64, 65, 255, 300, 511, 700, 1024};
    s->ndim = 2 + (unsigned)draw(s, 2);
    for (unsigned d = 0; d < 3; d++)
        s->sizes[d] = sizes[draw(s, sizeof sizes / sizeof *sizes)];
    if (s->ndim == 3)
        s->sizes[0] = 1 + draw(s, 6);
}

/* Chunks of the source, cut along one dim, each stored across, some also with padded rows. */
static uint32_t add_source(shape *s, exec_harness *w, dtype type)
{
    const uint32_t tensor = memory_source_add_tensor(&w->source, "w", type, s->ndim, s->sizes);
    const unsigned cut = (unsigned)draw(s, s->ndim);
    uint64_t offsets[3] = {0}, sizes[3];
    for (uint64_t at = 0; at < s->sizes[cut]; at += sizes[cut]) {
        memory_layout layout = {.permuted = true, .file = (uint32_t)draw(s, 2)};
        for (unsigned d = 0; d < s->ndim; d++) {
            sizes[d] = s->sizes[d];
            layout.order[d] = (unsigned char)d;
        }
        layout.order[s->ndim - 2] = (unsigned char)(s->ndim - 1);
        layout.order[s->ndim - 1] = (unsigned char)(s->ndim - 2);
        layout.gap_nbytes = (uint32_t)draw(s, 100);
        layout.pad_elems = draw(s, 3) == 0 ? (uint32_t)draw(s, 40) : 0;
        sizes[cut] = draw(s, 2) ? s->sizes[cut] - at : 1 + draw(s, s->sizes[cut] - at);
        offsets[cut] = at;
        memory_source_add_chunk(&w->source, tensor, offsets, sizes, &layout);
    }
    return tensor;
}

static void add_target(shape *s, exec_harness *w, uint32_t tensor, dtype type)
{
    const uint32_t to = exec_harness_add_target(w, tensor, "w", type);
    const unsigned cut = (unsigned)draw(s, s->ndim);
    uint64_t offsets[3] = {0}, sizes[3] = {s->sizes[0], s->sizes[1], s->sizes[2]};
    const uint64_t half = s->sizes[cut] / 2;
    if (half == 0 || draw(s, 2)) {
        exec_harness_add_chunk(w, to, 0, offsets, sizes);
        return;
    }
    sizes[cut] = half;
    exec_harness_add_chunk(w, to, 0, offsets, sizes);
    offsets[cut] = half;
    sizes[cut] = s->sizes[cut] - half;
    exec_harness_add_chunk(w, to, 1, offsets, sizes);
}

static void run_all(shape *s, exec_harness *w)
{
    static const uint64_t tiles[] = {4096, 65536, 1 << 20, 0};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        fsdpck_error err = {0};
        const exec_harness_options o = {.tile_nbytes = tiles[i],
                                        .nthreads = 1 + (unsigned)draw(s, 5),
                                        .memory_nbytes = (uint64_t)(16 + draw(s, 48)) << 20,
                                        .direct = (int)draw(s, 3)};
        must_be_ok(exec_harness_run(w, &o, &err), &err);
    }
}

static void run(uint64_t seed)
{
    static const dtype types[] = {DTYPE_BFLOAT16, DTYPE_FLOAT32, DTYPE_INT8, DTYPE_FLOAT64,
                                  DTYPE_BFLOAT16};
    shape s = {.state = seed};
    fsdpck_error err = {0};
    exec_harness *w = exec_harness_new(2, 2);
    w->seed = seed;
    draw_sizes(&s);
    const dtype type = types[draw(&s, sizeof types / sizeof *types)];
    const dtype to = type == DTYPE_BFLOAT16 && draw(&s, 3) == 0 ? DTYPE_FLOAT32 : type;
    const uint32_t tensor = add_source(&s, w, type);
    const uint64_t rows[] = {1 + draw(&s, 3000), 3};
    const uint32_t plain = memory_source_add_tensor(&w->source, "plain", DTYPE_INT16, 2, rows);
    memory_source_add_chunk(&w->source, plain, (const uint64_t[]){0, 0}, rows,
                            &(memory_layout){.gap_nbytes = 5});
    memory_source_seal(&w->source);
    if (draw(&s, 2))
        exec_harness_add_whole(w, plain, 0, DTYPE_INT16);
    add_target(&s, w, tensor, to);
    must_be_ok(catalogue_seal(&w->to.cat, &err), &err);
    exec_harness_place(w, draw(&s, 5000));
    w->to.want_crc = draw(&s, 2);
    exec_harness_expect(w);
    run_all(&s, w);
    exec_harness_free(w);
}

int main(int argc, char **argv)
{
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : SEEDS;
    for (uint64_t i = 0; i < count; i++)
        run(first + i);
    printf("%llu seeds\n", (unsigned long long)count);
    return 0;
}
