/* Launches as their threads do them against copies by the processor. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/crc.h"
#include "kernels/gpu_body.h"
#include "kernels/gpu_crc_body.h"
#include "state/element_ops.h"

#define MEMORY_NBYTES ((size_t)3 << 20)
#define BOXES_MAX     40u

typedef struct bench {
    uint64_t state;
    uint8_t *src, *dst, *want;
    uint8_t *scratch;
    gpu_box boxes[BOXES_MAX];
    gpu_dim dims[BOXES_MAX * 9];
    uint32_t count, dims_count, tasks;
    uint64_t want_lost;
} bench;

static uint64_t draw(bench *b, uint64_t below)
{
    uint64_t z = b->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % below;
}

static void begin(bench *b, uint64_t seed)
{
    memset(b, 0, sizeof *b);
    b->state = seed;
    b->src = aligned_alloc(256, MEMORY_NBYTES);
    b->dst = aligned_alloc(256, MEMORY_NBYTES);
    b->want = aligned_alloc(256, MEMORY_NBYTES);
    b->scratch = aligned_alloc(256, ELEMENT_OPS_SCRATCH_NBYTES);
    cr_assert(b->src != NULL && b->dst != NULL && b->want != NULL && b->scratch != NULL);
    for (size_t i = 0; i < MEMORY_NBYTES; i += 8) {
        const uint64_t word = draw(b, UINT64_MAX);
        memcpy(b->src + i, &word, 8);
    }
    memset(b->dst, 0x5A, MEMORY_NBYTES);
    memset(b->want, 0x5A, MEMORY_NBYTES);
}

static uint32_t find_box(const gpu_box *boxes, uint32_t count, uint32_t task, uint32_t nthreads)
{
    gpu_search search = {0, count};
    while (search.count > 1) {
        uint32_t number = 0;
        for (uint32_t t = 0; t < nthreads; t++)
            number += gpu_search_compare(&search, boxes, task, t, nthreads);
        gpu_search_narrow(&search, number, nthreads);
    }
    return search.first;
}

/* All tasks, by so many threads each; places must then be equal, and nothing else touched. */
static void run(bench *b, uint32_t nthreads)
{
    uint64_t lost = 0;
    for (uint32_t task = b->tasks; task-- > 0;) {
        const gpu_box *box = &b->boxes[find_box(b->boxes, b->count, task, nthreads)];
        for (uint32_t t = 0; t < nthreads; t++)
            lost += gpu_run_task(box, b->dims, b->src, b->dst, task, t, nthreads);
    }
    for (size_t i = 0; memcmp(b->dst, b->want, MEMORY_NBYTES) != 0 && i < MEMORY_NBYTES; i++)
        cr_assert_eq(b->dst[i], b->want[i], "byte %zu", i);
    cr_assert_eq(lost, b->want_lost);
    free(b->src);
    free(b->dst);
    free(b->want);
    free(b->scratch);
}

static bool add(bench *b, const element_ops *c, const strided *s, uint64_t src, uint64_t dst)
{
    static const gpu_dtype numbers[DTYPE_COUNT] = {
        [DTYPE_FLOAT32] = GPU_FLOAT32, [DTYPE_BFLOAT16] = GPU_BFLOAT16};
    gpu_copy copy = {.src = src,
                     .dst = dst,
                     .ndim = s->ndim,
                     .sizes = s->sizes,
                     .src_strides = s->src_strides,
                     .dst_strides = s->dst_strides,
                     .from = c->from == c->to ? GPU_BYTES : numbers[c->from],
                     .to = c->from == c->to ? GPU_BYTES : numbers[c->to],
                     .from_nbytes = dtype_get(c->from)->itemsize_bytes,
                     .to_nbytes = dtype_get(c->to)->itemsize_bytes,
                     .swap_nbytes = c->swap ? dtype_get(c->from)->swap_nbytes : 0};
    gpu_box *box = &b->boxes[b->count];
    if (!gpu_box_prepare(box, b->dims + b->dims_count, &copy))
        return false;
    box->first_task = b->tasks;
    box->dims_at = b->dims_count;
    b->tasks += box->tasks;
    b->dims_count += box->ndim;
    b->count++;
    if (element_ops_is_copy(c))
        strided_copy(s, copy.from_nbytes, b->want + dst, b->src + src);
    else
        b->want_lost += element_ops_box(c, s, b->want + dst, b->src + src, b->scratch);
    return true;
}

Test(gpu_box, runs_of_any_length_between_any_offsets)
{
    static const uint64_t lengths[] = {1,   2,   15,   16,   17,    127,   128,
                                       129, 300, 5000, 8192, 70001, 200003};
    const element_ops c = {.from = DTYPE_UINT8, .to = DTYPE_UINT8};
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (unsigned k = 0; k < 12; k++) {
            bench b;
            strided s = {1, {lengths[i]}, {1}, {1}};
            begin(&b, i + 1);
            cr_assert(add(&b, &c, &s, 100 + k, 1000 + k / 3 + k * 5));
            run(&b, k % 2 == 0 ? GPU_THREADS : 32);
        }
    }
}

/* Rows of all lengths up to those that warps copy, at all offsets; some next to each other. */
Test(gpu_box, rows_of_any_length_at_any_offset)
{
    const element_ops c = {.from = DTYPE_UINT8, .to = DTYPE_UINT8};
    for (uint64_t length = 1; length <= 530; length += BOXES_MAX / 8) {
        bench b;
        uint64_t at = length % 5;
        begin(&b, length);
        for (uint64_t k = 0; k < BOXES_MAX; k++) {
            const uint64_t run = length + k / 8, align = (uint64_t)1 << k % 5;
            const uint64_t src = (run + draw(&b, 20)) / align * align + align;
            const uint64_t dst = k % 3 == 0 ? run : (run + draw(&b, 20)) / align * align + align;
            const strided s = {2, {1 + draw(&b, 99), run}, {src, 1}, {dst, 1}};
            at += draw(&b, 40);
            at = k % 2 == 0 ? at : at / align * align + align;
            cr_assert(add(&b, &c, &s, draw(&b, 4096), at));
            at += s.sizes[0] * dst;
        }
        run(&b, length % 2 == 0 ? GPU_THREADS : 32);
    }
}

/* Rows at odd or even addresses: a thread copies some 16 bytes in a step, not 1 or 2. */
Test(gpu_box, short_rows_take_few_steps)
{
    for (uint64_t run = 48; run < 512; run++)
        for (uint64_t stride = run; stride < run + 32; stride += 1 + run % 2) {
            const uint64_t sizes[] = {100, run}, src[] = {run + 2, 1}, dst[] = {stride, 1};
            const gpu_copy c = {.src = 2,
                                .dst = 6,
                                .ndim = 2,
                                .sizes = sizes,
                                .src_strides = src,
                                .dst_strides = dst,
                                .from_nbytes = 1,
                                .to_nbytes = 1};
            gpu_box box;
            gpu_dim dims[3];
            cr_assert(gpu_box_prepare(&box, dims, &c));
            cr_assert_eq(box.way, GPU_WAY_LINES);
            cr_assert_leq(box.nelems, 100 * (run + 30) / 16);
        }
}

/* A box of random sizes, the source permuted and padded, both at odd places. */
static void draw_box(bench *b, strided *s, const element_ops *c, uint64_t *span, uint64_t *src_span)
{
    const uint64_t from = dtype_get(c->from)->itemsize_bytes;
    const uint64_t to = dtype_get(c->to)->itemsize_bytes;
    unsigned order[8];
    uint64_t stride;
    s->ndim = 1 + (unsigned)draw(b, 4);
    const uint64_t most = s->ndim == 1 ? 9000 : s->ndim == 2 ? 120 : 9;
    for (unsigned d = 0; d < s->ndim; d++) {
        s->sizes[d] = 1 + draw(b, most);
        order[d] = d;
        if (draw(b, 3) == 0) {
            const unsigned j = (unsigned)draw(b, d + 1);
            order[d] = order[j];
            order[j] = d;
        }
    }
    stride = from;
    for (unsigned i = s->ndim; i-- > 0;) {
        s->src_strides[order[i]] = stride;
        stride = stride * s->sizes[order[i]] + draw(b, 4) * from;
    }
    *src_span = stride;
    stride = to;
    for (unsigned d = s->ndim; d-- > 0;) {
        s->dst_strides[d] = stride;
        stride = stride * s->sizes[d] + draw(b, 3) * to;
    }
    *span = stride;
    strided_collapse(s);
}

Test(gpu_box, many_boxes_in_one_launch)
{
    static const element_ops converts[] = {
        {.from = DTYPE_UINT8, .to = DTYPE_UINT8},
        {.from = DTYPE_BFLOAT16, .to = DTYPE_BFLOAT16},
        {.from = DTYPE_FLOAT32, .to = DTYPE_FLOAT32},
        {.from = DTYPE_INT64, .to = DTYPE_INT64},
        {.from = DTYPE_COMPLEX128, .to = DTYPE_COMPLEX128},
        {.from = DTYPE_FLOAT32, .to = DTYPE_BFLOAT16},
        {.from = DTYPE_BFLOAT16, .to = DTYPE_FLOAT32, .swap = true},
        {.from = DTYPE_COMPLEX128, .to = DTYPE_COMPLEX128, .swap = true},
        {.from = DTYPE_INT16, .to = DTYPE_INT16, .swap = true},
    };
    for (uint64_t seed = 1; seed <= 60; seed++) {
        bench b;
        uint64_t at = draw(&(bench){.state = seed}, 64);
        begin(&b, seed);
        while (b.count < BOXES_MAX) {
            strided s;
            uint64_t span, src_span;
            const element_ops *c = &converts[draw(&b, sizeof converts / sizeof converts[0])];
            draw_box(&b, &s, c, &span, &src_span);
            if (at + span + 64 > MEMORY_NBYTES || src_span + 4096 > MEMORY_NBYTES)
                break;
            cr_assert(add(&b, c, &s, draw(&b, MEMORY_NBYTES - src_span - 64), at));
            at += span + draw(&b, 40);
        }
        cr_assert_gt(b.count, 3);
        run(&b, GPU_THREADS);
    }
}

Test(gpu_box, what_is_too_large_is_refused)
{
    const uint64_t sizes[2] = {1 << 20, 1 << 20};
    const uint64_t strides[2] = {1 << 20, 1};
    gpu_dim dims[3];
    gpu_box box;
    const gpu_copy c = {.ndim = 2,
                        .sizes = sizes,
                        .src_strides = strides,
                        .dst_strides = strides,
                        .from_nbytes = 1,
                        .to_nbytes = 1};
    cr_assert_not(gpu_box_prepare(&box, dims, &c));
}

Test(gpu_box, a_sum_sees_every_bit_and_is_made_in_any_order)
{
    uint8_t bytes[1003];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37);
    const uint64_t sum = gpu_sum(bytes, sizeof bytes);
    uint64_t parts = 0;
    for (uint64_t i = 0; i < 64; i++)
        parts += gpu_sum_words(bytes, sizeof bytes, i, 64);
    cr_assert_eq(parts, sum);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_neq(gpu_sum(bytes, sizeof bytes), sum);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* A stuck or flipping line of the bus changes one bit of several words. */
Test(gpu_box, a_sum_sees_one_bit_of_several_words)
{
    uint64_t words[10], stuck[10];
    for (unsigned bit = 0; bit < 64; bit++) {
        for (unsigned i = 0; i < 10; i++)
            words[i] = i * 0x0123456789ABCDEFull;
        const uint64_t sum = gpu_sum(words, sizeof words);
        for (unsigned i = 0; i < 10; i++)
            for (unsigned k = 0; k < i; k++) {
                memcpy(stuck, words, sizeof words);
                stuck[i] ^= (uint64_t)1 << bit;
                stuck[k] ^= (uint64_t)1 << bit;
                cr_expect_neq(gpu_sum(stuck, sizeof stuck), sum, "bit %u of %u and %u", bit, i, k);
            }
        for (unsigned i = 0; i < 10; i++)
            stuck[i] = words[i] | (uint64_t)1 << bit;
        cr_expect(memcmp(stuck, words, sizeof words) == 0 || gpu_sum(stuck, sizeof stuck) != sum);
    }
}

static uint64_t crc_by_threads(const gpu_crc *c, const uint8_t *bytes)
{
    uint64_t table[256], sums[GPU_CRC_THREADS], crc = 0;
    for (uint32_t i = 0; i < 256; i++)
        table[i] = gpu_crc_entry(c, i);
    for (uint32_t block = c->blocks; block-- > 0;) {
        for (uint32_t t = 0; t < GPU_CRC_THREADS; t++)
            sums[t] = gpu_crc_words(c, table, bytes, block, t);
        for (unsigned level = 0; level < GPU_CRC_LEVELS; level++)
            for (uint32_t t = gpu_crc_pairs(level); t-- > 0;)
                sums[gpu_crc_pair(level, t)] =
                    gpu_crc_join(c, level, sums + gpu_crc_pair(level, t));
        crc ^= gpu_crc_block(c, sums[0], block);
    }
    return crc;
}

Test(gpu_box, a_crc_is_that_of_the_processor)
{
    static const uint64_t lengths[] = {1,     2,     7,     8,      9,      15,     16,     17,
                                       2047,  2048,  2049,  65535,  65536,  65537,  131072, 131077,
                                       70001, 99999, 12345, 524288, 720003, 655360, 3,      5};
    static uint8_t bytes[800000] __attribute__((aligned(16)));
    bench b = {.state = 3};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)draw(&b, 256);
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const uint64_t skip = i % 11, n = lengths[i];
        gpu_crc c;
        cr_assert(gpu_crc_prepare(&c, 4096 + skip, n));
        cr_assert_eq(c.at, 4096 + skip / 8 * 8);
        const uint64_t zeros = (8 - (skip + n) % 8) % 8;
        cr_assert_eq(crc_by_threads(&c, bytes + skip / 8 * 8),
                     crc64_shift(crc64_raw(0, bytes + skip, n), zeros), "%u bytes", (unsigned)n);
    }
    cr_assert_not(gpu_crc_prepare(&(gpu_crc){0}, 0, (uint64_t)1 << 40));
}

Test(gpu_box, a_device_is_opened_or_its_lack_explained)
{
    fsdpck_error err = {0};
    gpu *g = NULL;
    const fsdpck_status st = gpu_open(3, &g, &err);
    if (st == FSDPCK_OK) {
        cr_assert_lt(g->index, g->count);
        cr_assert_neq(g->name[0], '\0');
        g->calls->close(g);
    } else {
        cr_assert_eq(st, FSDPCK_DEVICE);
        cr_assert_null(g);
        cr_assert_neq(err.message[0], '\0');
        cr_assert_neq(err.next[0], '\0');
    }
}
