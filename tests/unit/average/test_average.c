#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "average/average.h"
#include "average/average_sum.h"
#include "base/pool.h"
#include "state/cast.h"
#include "tests/support/memory_source.h"
#include "tests/support/random.h"

#define INPUTS 3
#define ROWS   700
#define COLS   1100

/* Tensors of one name in several inputs have the same elements, so the names of the inputs' tensors differ. */
typedef struct average_test {
    budget metadata;
    memory_source m[INPUTS];
    catalogue out;
    averager *v;
    average_rule rule;
    bool stream; /* input 1 is one, which only streams read */
    double coefficients[INPUTS];
} average_test;

static const char *const names[INPUTS] = {"a", "b", "c"};

/* Input i has its own sharding and encoding. */
static void add_input(average_test *t, size_t i, dtype type)
{
    static const memory_layout layouts[INPUTS] = {
        {.gap_nbytes = 3}, {.stream = true, .gap_nbytes = 8}, {.swap = true, .file = 1}};
    const uint64_t shape[2] = {ROWS, COLS};
    memory_source *m = &t->m[i];
    memory_source_init(m, 2, &t->metadata);
    const uint32_t tensor = memory_source_add_tensor(m, names[i], type, 2, shape);
    for (uint64_t k = 0; k < i + 1; k++) {
        const unsigned dim = i == 2;
        uint64_t offsets[2] = {0, 0}, sizes[2] = {ROWS, COLS};
        const uint64_t step = shape[dim] / (i + 1);
        offsets[dim] = k * step;
        sizes[dim] = k == i ? shape[dim] - k * step : step;
        memory_layout layout = layouts[i];
        layout.stream = layout.stream && t->stream;
        memory_source_add_chunk(m, tensor, offsets, sizes, &layout);
    }
    memory_source_seal(m);
}

static void begin(average_test *t, dtype type, average_rule rule, size_t count, bool stream)
{
    average_input inputs[INPUTS];
    static const uint32_t tensors[INPUTS] = {0, 0, 0};
    budget_init(&t->metadata, UINT64_MAX, "test", NULL);
    t->stream = stream;
    for (size_t i = 0; i < INPUTS; i++) {
        add_input(t, i, type);
        inputs[i] = (average_input){&t->m[i].cat, &t->m[i].src, names[i]};
        t->coefficients[i] = 0.3 * (double)(i + 1);
    }
    t->rule = rule;
    t->rule.coefficients = t->coefficients;
    t->rule.count = count - rule.has_base;
    const average_request request = {
        .inputs = inputs, .count = count, .tensors = tensors, .rule = &t->rule};
    fsdpck_error err = {0};
    catalogue_init(&t->out, &t->metadata);
    cr_assert_eq(averager_new(&request, &t->out, &t->v, &err), FSDPCK_OK, "%s", err.message);
}

static void end(average_test *t)
{
    averager_free(t->v);
    catalogue_release(&t->out);
    for (size_t i = 0; i < INPUTS; i++)
        memory_source_release(&t->m[i]);
}

typedef struct read_job {
    const average_test *t;
    uint8_t *to;
    uint64_t itemsize;
    uint64_t step;
} read_job;

static fsdpck_status read_chunk(void *ctx, unsigned worker, uint64_t chunk, fsdpck_error *err)
{
    const read_job *job = ctx;
    const source *s = averager_source(job->t->v);
    uint64_t offsets[2], sizes[2];
    source_stream *stream;
    place where = {0};
    (void)worker;
    catalogue_chunk_box(&job->t->out, chunk, offsets, sizes);
    cr_assert(sizes[1] == COLS, "the tests assume whole rows");
    RETURN_IF(s->locate(s->ctx, chunk, &where, err));
    cr_assert(where.stream && where.rows && where.offset_bytes == 0);
    RETURN_IF(s->stream_open(s->ctx, chunk, &stream, err));
    const uint64_t nbytes = sizes[0] * COLS * job->itemsize;
    uint8_t *to = job->to + offsets[0] * COLS * job->itemsize;
    fsdpck_status st = FSDPCK_OK;
    for (uint64_t at = 0; at < nbytes && st == FSDPCK_OK; at += job->step)
        st =
            s->stream_read(stream, to + at, nbytes - at < job->step ? nbytes - at : job->step, err);
    if (st == FSDPCK_OK)
        st = s->stream_finish(stream, err);
    s->stream_close(stream);
    return st;
}

/* All of the average, by several threads. */
static uint8_t *read_average(const average_test *t, dtype type, unsigned threads, uint64_t step)
{
    const uint64_t itemsize = dtype_get(type)->itemsize_bytes;
    read_job job = {t, malloc(ROWS * COLS * itemsize), itemsize, step};
    fsdpck_error err = {0};
    cr_assert_eq(pool_run(threads, catalogue_chunk_count(&t->out), read_chunk, &job, NULL, &err),
                 FSDPCK_OK, "%s", err.message);
    return job.to;
}

/* Boxes of chunks have the elements of their streams, in any order of the boxes. */
static void check_boxes(const average_test *t, dtype type, const uint8_t *all)
{
    const source *s = averager_source(t->v);
    const uint64_t itemsize = dtype_get(type)->itemsize_bytes;
    uint64_t state = 5, boxes = 0;
    for (uint64_t k = catalogue_chunk_count(&t->out); k-- > 0;) {
        uint64_t offsets[2], sizes[2], at[2], n[2];
        place where = {0};
        fsdpck_error err = {0};
        catalogue_chunk_box(&t->out, k, offsets, sizes);
        cr_assert_eq(s->locate(s->ctx, k, &where, NULL), FSDPCK_OK);
        for (int i = 0; where.boxes && i < 5; i++, boxes++) {
            for (int d = 0; d < 2; d++) {
                at[d] = random_below(&state, sizes[d]);
                n[d] = 1 + random_below(&state, sizes[d] - at[d]);
            }
            uint8_t *found = malloc(n[0] * n[1] * itemsize);
            cr_assert_eq(s->read_box(s->ctx, k, at, n, found, &err), FSDPCK_OK, "%s", err.message);
            for (uint64_t r = 0; r < n[0]; r++)
                cr_assert_arr_eq(found + r * n[1] * itemsize,
                                 all + ((offsets[0] + at[0] + r) * COLS + offsets[1] + at[1]) *
                                           itemsize,
                                 n[1] * itemsize);
            free(found);
        }
    }
    cr_expect_eq(boxes > 0, !t->stream);
}

static float element_f32(size_t input, dtype type, uint64_t i)
{
    uint8_t bytes[8];
    float f;
    memory_element(names[input], type, i, bytes);
    if (type == DTYPE_FLOAT32)
        memcpy(&f, bytes, sizeof f);
    else
        cast_elements(type, DTYPE_FLOAT32, &f, bytes, 1);
    return f;
}

/* The sums that averages are defined by, one element at a time; volatile: each operation is rounded. */
static void expect_sums(const average_test *t, dtype type, const uint8_t *found)
{
    const uint64_t itemsize = dtype_get(type)->itemsize_bytes;
    const average_rule *r = &t->rule;
    for (uint64_t i = 0; i < ROWS * COLS; i++) {
        volatile float sum = 0, product, difference;
        uint8_t expected[8];
        for (size_t k = 0; k < r->count; k++) {
            difference = element_f32(k, type, i);
            if (r->has_base)
                difference = difference - element_f32(r->count, type, i);
            product = (float)r->coefficients[k] * difference;
            sum = sum + product;
        }
        if (r->has_base) {
            product = (float)r->scale * sum;
            sum = element_f32(r->count, type, i) + product;
        }
        const float result = sum;
        if (type == DTYPE_FLOAT32)
            memcpy(expected, &result, sizeof result);
        else
            cast_elements(DTYPE_FLOAT32, type, expected, &result, 1);
        cr_assert_arr_eq(found + i * itemsize, expected, itemsize, "%s element %d",
                         dtype_get(type)->name, (int)i);
    }
}

static void check_sums(dtype type, average_rule rule, size_t count)
{
    average_test t;
    begin(&t, type, rule, count, true);
    uint8_t *one = read_average(&t, type, 1, 1u << 20), *many = read_average(&t, type, 4, 1001);
    expect_sums(&t, type, one);
    cr_expect_arr_eq(one, many, ROWS * COLS * dtype_get(type)->itemsize_bytes);
    free(one);
    free(many);
    end(&t);
}

Test(average, sums)
{
    check_sums(DTYPE_BFLOAT16, (average_rule){0}, 3);
    check_sums(DTYPE_BFLOAT16, (average_rule){.has_base = true, .scale = 0.7}, 3);
    check_sums(DTYPE_BFLOAT16, (average_rule){0}, 1);
}

Test(average, boxes)
{
    const struct {
        dtype type;
        size_t count;
        average_rule rule;
        bool stream;
    } cases[] = {{DTYPE_BFLOAT16, 3, {0}, false},
                 {DTYPE_FLOAT32, 3, {.has_base = true, .scale = 0.7}, false},
                 {DTYPE_FLOAT16, 2, {.slerp = true, .slerp_t = 0.3}, false},
                 {DTYPE_UINT8, 1, {0}, false},
                 {DTYPE_BFLOAT16, 3, {0}, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        average_test t;
        begin(&t, cases[i].type, cases[i].rule, cases[i].count, cases[i].stream);
        uint8_t *all = read_average(&t, cases[i].type, 2, 1u << 16);
        check_boxes(&t, cases[i].type, all);
        free(all);
        end(&t);
    }
}

/* A stream of input b is decoded once, whatever the chunks of the average. */
Test(average, streams_are_decoded_once)
{
    average_test t;
    begin(&t, DTYPE_BFLOAT16, (average_rule){0}, 3, true);
    free(read_average(&t, DTYPE_BFLOAT16, 2, 1u << 16));
    cr_expect_leq(t.m[1].decoded_bytes, ROWS * COLS * 2 + 2 * 8);
    cr_expect_eq(t.m[1].open_streams, 0);
    end(&t);
}

Test(average, farthest_input)
{
    average_test t;
    begin(&t, DTYPE_BFLOAT16, (average_rule){0}, 3, true);
    uint8_t *found = read_average(&t, DTYPE_BFLOAT16, 2, 1u << 16);
    for (size_t k = 0; k < 3; k++) {
        double far = 0;
        for (uint64_t i = 0; i < ROWS * COLS; i++) {
            float result;
            cast_elements(DTYPE_BFLOAT16, DTYPE_FLOAT32, &result, found + 2 * i, 1);
            const float difference = fabsf(element_f32(k, DTYPE_BFLOAT16, i) - result);
            far = difference > far ? difference : far;
        }
        cr_expect_eq(averager_distance(t.v, 0, k), far);
    }
    free(found);
    end(&t);
}

static void sum_one(const average_rule *rule, dtype type, const void *const *from, void *to)
{
    average_sum s;
    size_t culprit;
    cr_assert_eq(average_sum_init(&s, rule, rule->count, type, NULL), FSDPCK_OK);
    cr_assert(average_sum_block(&s, (const uint8_t *const *)from, to, 1, &culprit));
    average_sum_release(&s);
}

/* float64 to 16 bits in one rounding: through float32 the tie would go to the even neighbor. */
Test(average, one_rounding)
{
    const uint16_t one = 0x3C00, step = 0x1000; /* float16: 1, 2^-11 */
    double c[2] = {1, 1 + 0x1p-40};
    const average_rule wide = {.coefficients = c, .count = 2, .wide = true};
    uint16_t found;
    sum_one(&wide, DTYPE_FLOAT16, (const void *const[]){&one, &step}, &found);
    cr_expect_eq(found, 0x3C01, "1 + 2^-11 + 2^-51 is nearer to 1 + 2^-10: %x", found);
    c[1] = 1;
    sum_one(&wide, DTYPE_FLOAT16, (const void *const[]){&one, &step}, &found);
    cr_expect_eq(found, 0x3C00, "a tie goes to the even neighbor: %x", found);
    c[1] = 1 - 0x1p-40;
    sum_one(&wide, DTYPE_FLOAT16, (const void *const[]){&one, &step}, &found);
    cr_expect_eq(found, 0x3C00);
}

/* Without fused operations: 0.1f * 10 is 1 after rounding, and then nothing is left. */
Test(average, products_are_rounded)
{
    const float minus = -1, ten = 10;
    double c[2] = {1, 0.1};
    const average_rule rule = {.coefficients = c, .count = 2};
    float found;
    sum_one(&rule, DTYPE_FLOAT32, (const void *const[]){&minus, &ten}, &found);
    cr_expect_eq(found, 0);
}

/* One sum over all products in order would be wrong by 4e-12 of the whole. */
Test(average, products_of_many_blocks)
{
    enum { BLOCKS = 256 };
    static double x[AVERAGE_BLOCK];
    const uint8_t *const from[2] = {(const uint8_t *)x, (const uint8_t *)x};
    const average_rule rule = {.slerp = true, .count = 2};
    average_sum s;
    double sums[3] = {0};
    size_t culprit;
    for (unsigned i = 0; i < AVERAGE_BLOCK; i++)
        x[i] = 0.1;
    cr_assert_eq(average_sum_init(&s, &rule, 2, DTYPE_FLOAT64, NULL), FSDPCK_OK);
    for (int i = 0; i < BLOCKS; i++)
        cr_assert(average_sum_products(&s, from, AVERAGE_BLOCK, sums, &culprit));
    for (int i = 0; i < 3; i++)
        cr_expect(fabs(sums[i] / (BLOCKS * AVERAGE_BLOCK * (0.1 * 0.1)) - 1) < 1e-14,
                  "sum %d: %.17g", i, sums[i]);
    average_sum_release(&s);
}

/* A block that no number of lanes divides. */
Test(average, products_of_a_short_block)
{
    const double a[11] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const double b[11] = {2, 0, 1, 0, 0, -1, 0, 0, 0, 3, 1};
    const uint8_t *const from[2] = {(const uint8_t *)a, (const uint8_t *)b};
    const average_rule rule = {.slerp = true, .count = 2};
    average_sum s;
    double sums[3] = {1000, 2000, 3000};
    size_t culprit;
    cr_assert_eq(average_sum_init(&s, &rule, 2, DTYPE_FLOAT64, NULL), FSDPCK_OK);
    cr_assert(average_sum_products(&s, from, 11, sums, &culprit));
    cr_expect(sums[0] == 1506 && sums[1] == 2040 && sums[2] == 3016, "%g %g %g", sums[0], sums[1],
              sums[2]);
    average_sum_release(&s);
}

Test(average, special_numbers)
{
    const float finite = 1, bad[] = {NAN, INFINITY, -INFINITY}, large = 3e38f;
    double c[2] = {1, 1};
    const average_rule rule = {.coefficients = c, .count = 2};
    average_sum s;
    size_t culprit;
    float to;
    cr_assert_eq(average_sum_init(&s, &rule, 2, DTYPE_FLOAT32, NULL), FSDPCK_OK);
    for (int i = 0; i < 3; i++) {
        const uint8_t *const from[2] = {(const uint8_t *)&finite, (const uint8_t *)&bad[i]};
        cr_expect_not(average_sum_block(&s, from, (uint8_t *)&to, 1, &culprit));
        cr_expect_eq(culprit, 1);
    }
    const uint8_t *const from[2] = {(const uint8_t *)&large, (const uint8_t *)&large};
    cr_expect_not(average_sum_block(&s, from, (uint8_t *)&to, 1, &culprit));
    cr_expect_eq(culprit, 2, "the result overflows");
    average_sum_release(&s);
}
