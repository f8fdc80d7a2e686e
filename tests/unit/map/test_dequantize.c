/* MXFP4 weights that are decoded in several windows of groups, from any chunks, in any steps. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "map/dequantize.h"
#include "state/box.h"
#include "tests/support/memory_source.h"

enum { EXPERTS = 2, ROWS = 3001, GROUPS = 26, BYTES = 16, VALUES = 32 };

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
    cr_assert_eq(
        dequantizer_new(&q->source.cat, &q->source.src, inputs, 2, &q->seen, &q->dq, &q->err),
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
