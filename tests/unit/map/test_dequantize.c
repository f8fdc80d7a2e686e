/* MXFP4 weights that are decoded in several windows of groups, from any chunks, in any steps; 8-bit floats in
 * blocks of any size. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "map/dequantize.h"
#include "state/box.h"
#include "state/cast.h"
#include "tests/support/memory_source.h"

enum { EXPERTS = 2, ROWS = 3001, GROUPS = 26, BYTES = 16, VALUES = 32 };

static const quant_blocks square = {.size = {128, 128}};
static const uint64_t block_shape[4] = {EXPERTS, ROWS, GROUPS, BYTES};

typedef struct quantized {
    budget memory;
    memory_source source;
    catalogue seen;
    dequantizer *dq;
    fsdpck_error err;
} quantized;

/* One tensor in chunks that are cut along `dim`, `at` being the first of the second chunk. */
static void add(quantized *q, const char *name, unsigned ndim, unsigned dim, uint64_t at)
{
    const uint32_t t = memory_source_add_tensor(&q->source, name, DTYPE_UINT8, ndim, block_shape);
    uint64_t offsets[4] = {0}, sizes[4];
    memcpy(sizes, block_shape, sizeof sizes);
    sizes[dim] = at;
    memory_source_add_chunk(&q->source, t, offsets, sizes, &(memory_layout){.gap_nbytes = 3});
    offsets[dim] = at;
    sizes[dim] = block_shape[dim] - at;
    if (sizes[dim] > 0)
        memory_source_add_chunk(&q->source, t, offsets, sizes, &(memory_layout){.gap_nbytes = 5});
}

static void begin(quantized *q, unsigned dim, uint64_t at)
{
    memset(q, 0, sizeof *q);
    q->memory.limit_bytes = (uint64_t)64 << 20;
    fsdpck_error_init(&q->err);
    memory_source_init(&q->source, 1, &q->memory);
    add(q, "w_blocks", 4, dim, at);
    add(q, "w_scales", 3, 1, 17);
    memory_source_seal(&q->source);
    catalogue_init(&q->seen, &q->memory);
    const map_input inputs[] = {{.name = "w_blocks", .nbytes = 8, .tensor = 0},
                                {.name = "w_scales", .nbytes = 8, .tensor = 1}};
    cr_assert_eq(dequantizer_new(&q->source.cat, &q->source.src, square, inputs, 2, &q->seen,
                                 &q->dq, &q->err),
                 FSDPCK_OK, "%s", q->err.message);
}

static void end(quantized *q)
{
    dequantizer_free(q->dq);
    catalogue_release(&q->seen);
    memory_source_release(&q->source);
}

static unsigned byte_of(const char *tensor, uint64_t index)
{
    uint8_t byte;
    memory_element(tensor, DTYPE_UINT8, index, &byte);
    return byte;
}

/* By arithmetic: a value of 4 bits times a power of two, whose bits beyond those of bfloat16 are zeros. */
static uint16_t expected(uint64_t expert, uint64_t column, uint64_t row)
{
    static const double values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const uint64_t group = column / VALUES, i = column % VALUES;
    const uint64_t block = (expert * ROWS + row) * GROUPS + group;
    const unsigned pair = byte_of("w_blocks", block * BYTES + i / 2);
    const unsigned four = i % 2 ? pair >> 4 : pair & 15;
    const double exact = ldexp(values[four & 7], (int)byte_of("w_scales", block) - 127);
    const float rounded = (float)(four & 8 ? -exact : exact);
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void check_element(uint64_t flat, uint16_t got)
{
    const uint64_t row = flat % ROWS, column = flat / ROWS % (GROUPS * VALUES);
    const uint16_t want = expected(flat / ROWS / (GROUPS * VALUES), column, row);
    cr_assert_eq(got, want, "element %llu: %x, not %x", (unsigned long long)flat, got, want);
}

/* Reads the stream of a chunk by `step` bytes, and compares some elements, among them the edges. */
static void check_chunk(quantized *q, uint64_t chunk, uint64_t step)
{
    const source *src = dequantizer_source(q->dq);
    const uint64_t shape[3] = {EXPERTS, GROUPS * VALUES, ROWS};
    uint64_t offsets[3], sizes[3];
    source_stream *stream;
    catalogue_chunk_box(&q->seen, chunk, offsets, sizes);
    const uint64_t nelems = box_nelems(sizes, 3);
    uint16_t *all = malloc(nelems * sizeof *all);
    cr_assert_eq(src->stream_open(src->ctx, chunk, &stream, &q->err), FSDPCK_OK, "%s",
                 q->err.message);
    for (uint64_t at = 0; at < 2 * nelems; at += step) {
        const uint64_t n = 2 * nelems - at < step ? 2 * nelems - at : step;
        cr_assert_eq(src->stream_read(stream, (uint8_t *)all + at, n, &q->err), FSDPCK_OK);
    }
    cr_assert_eq(src->stream_finish(stream, &q->err), FSDPCK_OK);
    src->stream_close(stream);
    for (uint64_t i = 0; i < nelems; i += 1 + i % 7 * 11) {
        const uint64_t r = i % sizes[2] + offsets[2], c = i / sizes[2] % sizes[1] + offsets[1];
        const uint64_t e = i / sizes[2] / sizes[1] + offsets[0];
        check_element((e * shape[1] + c) * shape[2] + r, all[i]);
    }
    /* A window of groups, its scales, a decoded group and one read: not the weight. */
    cr_assert_lt(src->stream_nbytes(src->ctx, chunk), (uint64_t)1 << 20);
    free(all);
}

Test(dequantize, windows_of_groups)
{
    const struct {
        unsigned dim;
        uint64_t at;
    } cuts[] = {{0, EXPERTS}, {0, 1}, {1, 1000}, {2, 13}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        quantized q;
        begin(&q, cuts[i].dim, cuts[i].at);
        cr_assert_eq(catalogue_tensor_count(&q.seen), 1);
        for (uint64_t k = 0; k < catalogue_chunk_count(&q.seen); k++)
            check_chunk(&q, k, k % 2 ? 100000 : 4097);
        end(&q);
    }
}

/* --- 8-bit floats --- */

enum { MATRICES = 2, HEIGHT = 21, WIDTH = 34 };

static const uint64_t fp8_shape[3] = {MATRICES, HEIGHT, WIDTH};

static uint64_t blocks(uint64_t n, uint64_t block)
{
    return n / block + (n % block > 0);
}

static fsdpck_status begin_fp8(quantized *q, const uint64_t block[2], const uint64_t stated[2])
{
    const uint64_t scales[3] = {MATRICES, blocks(HEIGHT, block[0]), blocks(WIDTH, block[1])};
    const uint64_t top[3] = {MATRICES, 8, WIDTH}, rest[3] = {MATRICES, HEIGHT - 8, WIDTH};
    const uint64_t zeros[3] = {0}, below[3] = {0, 8, 0};
    memset(q, 0, sizeof *q);
    q->memory.limit_bytes = (uint64_t)64 << 20;
    fsdpck_error_init(&q->err);
    memory_source_init(&q->source, 1, &q->memory);
    const uint32_t w = memory_source_add_tensor(&q->source, "w", DTYPE_FLOAT8_E4M3FN, 3, fp8_shape);
    memory_source_add_chunk(&q->source, w, zeros, top, &(memory_layout){0});
    memory_source_add_chunk(&q->source, w, below, rest, &(memory_layout){0});
    const uint32_t s =
        memory_source_add_tensor(&q->source, "w_scale_inv", DTYPE_FLOAT32, 3, scales);
    memory_source_add_chunk(&q->source, s, zeros, scales, &(memory_layout){0});
    memory_source_seal(&q->source);
    catalogue_init(&q->seen, &q->memory);
    const map_input inputs[] = {{.name = "w", .nbytes = 1, .tensor = w},
                                {.name = "w_scale_inv", .nbytes = 11, .tensor = s}};
    return dequantizer_new(&q->source.cat, &q->source.src,
                           (quant_blocks){.size = {stated[0], stated[1]}}, inputs, 2, &q->seen,
                           &q->dq, &q->err);
}

static uint16_t expected_fp8(const uint64_t block[2], const uint64_t at[3])
{
    const uint64_t rows = blocks(HEIGHT, block[0]), columns = blocks(WIDTH, block[1]);
    uint8_t byte[1], bytes[4];
    float product, scale;
    uint16_t rounded;
    memory_element("w", DTYPE_FLOAT8_E4M3FN, (at[0] * HEIGHT + at[1]) * WIDTH + at[2], byte);
    memory_element("w_scale_inv", DTYPE_FLOAT32,
                   (at[0] * rows + at[1] / block[0]) * columns + at[2] / block[1], bytes);
    cast_elements(DTYPE_FLOAT8_E4M3FN, DTYPE_FLOAT32, &product, byte, 1);
    memcpy(&scale, bytes, sizeof scale);
    product *= scale;
    cast_elements(DTYPE_FLOAT32, DTYPE_BFLOAT16, &rounded, &product, 1);
    return rounded;
}

static void check_fp8_chunk(quantized *q, uint64_t chunk, const uint64_t block[2])
{
    const source *src = dequantizer_source(q->dq);
    uint64_t offsets[3], sizes[3];
    uint16_t all[MATRICES * HEIGHT * WIDTH];
    source_stream *stream;
    catalogue_chunk_box(&q->seen, chunk, offsets, sizes);
    const uint64_t n = box_nelems(sizes, 3);
    cr_assert_eq(src->stream_open(src->ctx, chunk, &stream, &q->err), FSDPCK_OK, "%s",
                 q->err.message);
    cr_assert_eq(src->stream_read(stream, all, n * sizeof *all, &q->err), FSDPCK_OK);
    cr_assert_eq(src->stream_finish(stream, &q->err), FSDPCK_OK);
    src->stream_close(stream);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at[3] = {offsets[0] + i / sizes[2] / sizes[1],
                                offsets[1] + i / sizes[2] % sizes[1], offsets[2] + i % sizes[2]};
        cr_assert_eq(all[i], expected_fp8(block, at), "%llu", (unsigned long long)i);
    }
}

Test(dequantize, blocks_of_any_size)
{
    const uint64_t sizes[][2] = {{128, 128}, {1, 128}, {5, 3}, {64, 1}, {8, 34}, {21, 33}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        quantized q;
        cr_assert_eq(begin_fp8(&q, sizes[i], sizes[i]), FSDPCK_OK, "%s", q.err.message);
        for (uint64_t k = 0; k < catalogue_chunk_count(&q.seen); k++)
            check_fp8_chunk(&q, k, sizes[i]);
        end(&q);
    }
}

Test(dequantize, scales_of_other_blocks_are_refused)
{
    const uint64_t block[2] = {5, 3}, stated[2] = {3, 5};
    quantized q;
    cr_assert_eq(begin_fp8(&q, block, stated), FSDPCK_BADINPUT);
    cr_assert_eq(q.err.finding, FSDPCK_FINDING_QUANT_SCALE);
    cr_assert_str_eq(q.err.expected, "shape [2, 7, 7]: one number for each block of 3 x 5");
    cr_assert_str_eq(q.err.found, "shape [2, 5, 12], dtype float32");
    end(&q);
}

/* With one scale for each element, the stream holds 8 bytes of scales for each byte of the weight. */
Test(dequantize, memory_of_a_stream_has_its_scales)
{
    const uint64_t wide[2] = {128, 128}, narrow[2] = {1, 1};
    quantized a, b;
    cr_assert_eq(begin_fp8(&a, wide, wide), FSDPCK_OK);
    cr_assert_eq(begin_fp8(&b, narrow, narrow), FSDPCK_OK);
    const source *x = dequantizer_source(a.dq), *y = dequantizer_source(b.dq);
    cr_assert_geq(y->stream_nbytes(y->ctx, 0),
                  x->stream_nbytes(x->ctx, 0) + (8 * WIDTH - 1) * 2 * sizeof(float));
    end(&a);
    end(&b);
}
