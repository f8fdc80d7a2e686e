#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "state/box_read.h"
#include "tests/support/memory_source.h"
#include "tests/support/random.h"

#define ROWS 37
#define COLS 53

typedef struct box_test {
    budget metadata;
    memory_source m;
    box_reader r;
    uint32_t tensor;
} box_test;

/* A tensor [ROWS, COLS] in `nshards` shards along `dim`, each twice, all laid out alike. */
static void begin(box_test *t, const char *name, dtype type, unsigned dim, uint64_t nshards,
                  memory_layout layout)
{
    budget_init(&t->metadata, UINT64_MAX, "test", NULL);
    memory_source_init(&t->m, 2, &t->metadata);
    t->tensor = memory_source_add_tensor(&t->m, name, type, 2, (const uint64_t[]){ROWS, COLS});
    for (uint64_t s = 0; s < 2 * nshards; s++) {
        uint64_t offsets[2] = {0, 0}, sizes[2] = {ROWS, COLS};
        const uint64_t i = s / 2, step = sizes[dim] / nshards;
        offsets[dim] = i * step;
        sizes[dim] = i + 1 == nshards ? sizes[dim] - i * step : step;
        layout.file = (uint32_t)(s % 2);
        memory_source_add_chunk(&t->m, t->tensor, offsets, sizes, &layout);
    }
    memory_source_seal(&t->m);
    box_reader_init(&t->r, &t->m.cat, &t->m.src, &t->metadata);
    cr_assert_eq(box_reader_add(&t->r, t->tensor, NULL), FSDPCK_OK);
}

static void end(box_test *t)
{
    cr_expect_eq(t->m.open_streams, 0);
    box_reader_release(&t->r);
    memory_source_release(&t->m);
}

static void expect_box(const char *name, dtype type, const uint64_t *offsets, const uint64_t *sizes,
                       const uint8_t *memory)
{
    const size_t itemsize = dtype_get(type)->itemsize_bytes;
    for (uint64_t i = 0; i < sizes[0]; i++)
        for (uint64_t j = 0; j < sizes[1]; j++) {
            uint8_t expected[16];
            memory_element(name, type, (offsets[0] + i) * COLS + offsets[1] + j, expected);
            cr_assert_arr_eq(memory + (i * sizes[1] + j) * itemsize, expected, itemsize,
                             "%s %s element %d, %d", name, dtype_get(type)->name, (int)i, (int)j);
        }
}

static void read_boxes(box_test *t, const char *name, dtype type)
{
    uint8_t memory[ROWS * COLS * 16];
    uint64_t state = 7;
    for (int n = 0; n < 40; n++) {
        uint64_t offsets[2] = {random_below(&state, ROWS), random_below(&state, COLS)};
        uint64_t sizes[2] = {1 + random_below(&state, ROWS - offsets[0]),
                             1 + random_below(&state, COLS - offsets[1])};
        if (n == 0) {
            offsets[0] = offsets[1] = 0;
            sizes[0] = ROWS;
            sizes[1] = COLS;
        }
        fsdpck_error err = {0};
        cr_assert_eq(box_read(&t->r, t->tensor, offsets, sizes, memory, &err), FSDPCK_OK, "%s",
                     err.message);
        expect_box(name, type, offsets, sizes, memory);
    }
}

/* Bands of some rows, front to back. */
static void read_bands(box_test *t, const char *name, dtype type)
{
    uint8_t memory[ROWS * COLS * 16];
    const uint64_t all_offsets[2] = {2, 3}, all_sizes[2] = {ROWS - 3, COLS - 4};
    uint64_t sizes[2] = {5, all_sizes[1]};
    box_cursor *c;
    cr_assert_eq(box_cursor_open(&t->r, t->tensor, all_offsets, all_sizes, &c, NULL), FSDPCK_OK);
    for (uint64_t at = 0; at < all_sizes[0]; at += sizes[0]) {
        const uint64_t offsets[2] = {all_offsets[0] + at, all_offsets[1]};
        fsdpck_error err = {0};
        sizes[0] = all_sizes[0] - at < 5 ? all_sizes[0] - at : 5;
        cr_assert_eq(box_cursor_read(c, offsets, sizes, memory, &err), FSDPCK_OK, "%s",
                     err.message);
        expect_box(name, type, offsets, sizes, memory);
    }
    cr_expect_eq(box_cursor_finish(c, NULL), FSDPCK_OK);
    cr_expect_eq(t->m.open_streams, 0);
    box_cursor_close(c);
}

static void read_all_ways(const char *name, dtype type, memory_layout layout)
{
    for (unsigned dim = 0; dim < 2; dim++)
        for (uint64_t nshards = 1; nshards < 30; nshards = 3 * nshards + 1) {
            box_test t;
            begin(&t, name, type, dim, nshards, layout);
            read_boxes(&t, name, type);
            read_bands(&t, name, type);
            end(&t);
        }
}

Test(box_read, layouts)
{
    const memory_layout layouts[] = {
        {.gap_nbytes = 5},
        {.pad_elems = 3},
        {.permuted = true, .order = {1, 0}},
        {.tilted = true},
        {.stream = true, .gap_nbytes = 11},
        {.stream = true, .permuted = true, .order = {1, 0}, .gap_nbytes = 3},
        {.stream = true, .tilted = true, .gap_nbytes = 3},
        {.swap = true},
        {.neg = true, .stream = true},
        {.conj = true, .neg = true, .swap = true},
    };
    const dtype types[] = {DTYPE_FLOAT32, DTYPE_BFLOAT16, DTYPE_COMPLEX64, DTYPE_INT64};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (size_t j = 0; j < sizeof types / sizeof *types; j++)
            if (types[j] != DTYPE_INT64 || !layouts[i].neg)
                read_all_ways("w", types[j], layouts[i]);
    read_all_ways("added", DTYPE_FLOAT32, (memory_layout){.add = 1});
    read_all_ways("added", DTYPE_BFLOAT16, (memory_layout){.add = -1, .stream = true});
}

Test(box_read, replicas_once)
{
    box_test t;
    uint8_t memory[ROWS * COLS * 4];
    begin(&t, "w", DTYPE_FLOAT32, 0, 1, (memory_layout){0});
    cr_assert_eq(box_read(&t.r, t.tensor, (const uint64_t[]){0, 0}, (const uint64_t[]){ROWS, COLS},
                          memory, NULL),
                 FSDPCK_OK);
    cr_expect_eq(t.m.bytes_read, sizeof memory);
    /* The other one on request. */
    cr_assert_eq(box_read_chunk(&t.r, catalogue_tensor(&t.m.cat, t.tensor)->first_chunk + 1,
                                (const uint64_t[]){1, 2}, (const uint64_t[]){3, 4}, memory, NULL),
                 FSDPCK_OK);
    expect_box("w", DTYPE_FLOAT32, (const uint64_t[]){1, 2}, (const uint64_t[]){3, 4}, memory);
    end(&t);
}

/* A compressed chunk that is read in many parts is decoded once. */
Test(box_read, streams_are_decoded_once)
{
    box_test t;
    begin(&t, "w", DTYPE_FLOAT32, 0, 1, (memory_layout){.stream = true, .gap_nbytes = 8});
    bool is_stream = false;
    cr_expect_eq(box_first_is_stream(&t.r, t.tensor, &is_stream, NULL), FSDPCK_OK);
    cr_expect(is_stream);
    read_bands(&t, "w", DTYPE_FLOAT32);
    cr_expect_gt(t.m.decoded_bytes, ROWS * COLS * 4 / 2);
    cr_expect_leq(t.m.decoded_bytes, ROWS * COLS * 4 + 8);
    end(&t);
    begin(&t, "w", DTYPE_FLOAT32, 0, 1, (memory_layout){0});
    cr_expect_eq(box_first_is_stream(&t.r, t.tensor, &is_stream, NULL), FSDPCK_OK);
    cr_expect_not(is_stream);
    end(&t);
}

Test(box_read, no_dims)
{
    box_test t;
    uint8_t memory[8], expected[8];
    budget_init(&t.metadata, UINT64_MAX, "test", NULL);
    memory_source_init(&t.m, 1, &t.metadata);
    t.tensor = memory_source_add_tensor(&t.m, "s", DTYPE_FLOAT64, 0, NULL);
    memory_source_add_chunk(&t.m, t.tensor, NULL, NULL, &(memory_layout){.swap = true});
    memory_source_seal(&t.m);
    box_reader_init(&t.r, &t.m.cat, &t.m.src, &t.metadata);
    cr_assert_eq(box_reader_add(&t.r, t.tensor, NULL), FSDPCK_OK);
    cr_assert_eq(box_read(&t.r, t.tensor, NULL, NULL, memory, NULL), FSDPCK_OK);
    memory_element("s", DTYPE_FLOAT64, 0, expected);
    cr_expect_arr_eq(memory, expected, sizeof memory);
    end(&t);
}

Test(box_read, missing_elements)
{
    box_test t;
    uint8_t memory[ROWS * COLS * 4];
    fsdpck_error err = {0};
    budget_init(&t.metadata, UINT64_MAX, "test", NULL);
    memory_source_init(&t.m, 1, &t.metadata);
    t.tensor =
        memory_source_add_tensor(&t.m, "w", DTYPE_FLOAT32, 2, (const uint64_t[]){ROWS, COLS});
    memory_source_add_chunk(&t.m, t.tensor, (const uint64_t[]){0, 0}, (const uint64_t[]){20, COLS},
                            &(memory_layout){0});
    memory_source_seal(&t.m);
    box_reader_init(&t.r, &t.m.cat, &t.m.src, &t.metadata);
    cr_assert_eq(box_reader_add(&t.r, t.tensor, NULL), FSDPCK_OK);
    cr_expect_eq(box_read(&t.r, t.tensor, (const uint64_t[]){0, 0}, (const uint64_t[]){20, COLS},
                          memory, NULL),
                 FSDPCK_OK);
    cr_expect_eq(box_read(&t.r, t.tensor, (const uint64_t[]){19, 0}, (const uint64_t[]){2, COLS},
                          memory, &err),
                 FSDPCK_BADINPUT);
    cr_expect_eq(err.finding, FSDPCK_FINDING_CHUNK_GAP);
    end(&t);
}

/* Chunks are read without an index of their tensor; nothing else is. */
Test(box_read, tensors_without_an_index)
{
    static const uint64_t zeros[2], sizes[2] = {ROWS, COLS};
    box_test t;
    bool is_stream;
    fsdpck_error err = {0};
    begin(&t, "w", DTYPE_FLOAT32, 0, 1, (memory_layout){.stream = true});
    box_reader bare;
    box_reader_init(&bare, &t.m.cat, &t.m.src, &t.metadata);
    cr_expect_eq(box_locate(&bare, t.tensor, zeros, sizes, &is_stream, &err), FSDPCK_INTERNAL);
    cr_expect_eq(box_first_is_stream(&bare, t.tensor, &is_stream, &err), FSDPCK_INTERNAL);
    /* Of one of the two equal chunks that a cursor has. */
    const uint64_t one = box_read_chunk_nbytes(&bare, 0, zeros, sizes);
    cr_expect_eq(one, box_read_chunk_nbytes(&t.r, 0, zeros, sizes));
    cr_expect(one > 0 && one <= box_cursor_nbytes(&t.r, t.tensor, zeros, sizes));
    box_reader_release(&bare);
    end(&t);
}
