/* The arithmetic of merging against plain loops, and against torch 2.15 (merge_crcs.py). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "lora/merge_kernel.h"
#include "state/cast.h"
#include "tests/support/random.h"

/* As in merge_crcs.py. */
static float number(uint64_t seed, uint64_t i)
{
    const uint64_t z = (seed * 1000003 + i + 1) * 0x9E3779B97F4A7C15u;
    return (float)((double)(z >> 40) / 0x1p24 - 0.5);
}

static float *numbers(uint64_t seed, uint64_t n)
{
    float *v = malloc(n * sizeof *v);
    for (uint64_t i = 0; i < n; i++)
        v[i] = number(seed, i);
    return v;
}

static float plain(const merge_factors *f, uint64_t i, uint64_t j)
{
    float sum = 0;
    for (uint64_t k = 0; k < f->rank; k++)
        sum = fmaf(f->left[i * f->rank + k], f->right[k * f->columns + j], sum);
    return sum * f->scale;
}

Test(merge_kernel, product_is_a_sum_in_order)
{
    uint64_t state = 3;
    for (int n = 0; n < 60; n++) {
        merge_factors f = {.rows = 1 + random_below(&state, 21),
                           .columns = 1 + random_below(&state, 300),
                           .rank = 1 + random_below(&state, 70),
                           .scale = 0.7f};
        float *left = numbers(1, f.rows * f.rank), *right = numbers(2, f.rank * f.columns);
        const uint64_t row = random_below(&state, f.rows), column = random_below(&state, f.columns);
        const uint64_t rows = f.rows - row, columns = f.columns - column;
        float *to = malloc(rows * columns * sizeof *to);
        f.left = left;
        f.right = right;
        merge_product(&f, row, rows, column, columns, to, columns);
        for (uint64_t i = 0; i < rows; i++)
            for (uint64_t j = 0; j < columns; j++)
                cr_assert_eq(to[i * columns + j], plain(&f, row + i, column + j));
        free(to);
        free(left);
        free(right);
    }
}

Test(merge_kernel, product_of_float64)
{
    double left[5 * 3], right[3 * 130], to[5 * 130];
    for (unsigned i = 0; i < 15; i++)
        left[i] = number(1, i);
    for (unsigned i = 0; i < 390; i++)
        right[i] = number(2, i);
    const merge_factors64 f = {left, right, 5, 130, 3, 0.3};
    merge_product64(&f, 0, 5, 0, 130, to, 130);
    for (unsigned i = 0; i < 5; i++)
        for (unsigned j = 0; j < 130; j++) {
            double sum = 0;
            for (unsigned k = 0; k < 3; k++)
                sum = fma(left[i * 3 + k], right[k * 130 + j], sum);
            cr_assert_eq(to[i * 130 + j], sum * 0.3);
        }
}

typedef struct torch_crc {
    uint64_t rank;
    uint32_t product, bf16, bf16_rounded, f16, f16_rounded, f32;
} torch_crc;

/* Of a weight [96, 200] and scale 1.25. */
static const torch_crc from_torch[] = {
#include "tests/unit/lora/merge_crcs.h"
};

static uint32_t crc_of_sum(dtype d, const float *weight, const float *delta, uint64_t n, bool round)
{
    const uint64_t nbytes = n * dtype_get(d)->itemsize_bytes;
    void *w = malloc(nbytes);
    if (d == DTYPE_FLOAT32)
        memcpy(w, weight, nbytes);
    else
        cast_elements(DTYPE_FLOAT32, d, w, weight, n);
    merge_add(d, w, delta, n, round);
    const uint32_t crc = crc32_update(0, w, nbytes);
    free(w);
    return crc;
}

Test(merge_kernel, equals_torch)
{
    for (size_t i = 0; i < sizeof from_torch / sizeof *from_torch; i++) {
        const torch_crc *t = &from_torch[i];
        const uint64_t n = 96 * 200;
        float *left = numbers(1, 96 * t->rank), *right = numbers(2, t->rank * 200);
        float *weight = numbers(3, n), *delta = malloc(n * sizeof *delta);
        const merge_factors f = {left, right, 96, 200, t->rank, 1.25f};
        merge_product(&f, 0, 96, 0, 200, delta, 200);
        cr_expect_eq(crc32_update(0, delta, n * sizeof *delta), t->product, "rank %d",
                     (int)t->rank);
        cr_expect_eq(crc_of_sum(DTYPE_BFLOAT16, weight, delta, n, false), t->bf16);
        cr_expect_eq(crc_of_sum(DTYPE_BFLOAT16, weight, delta, n, true), t->bf16_rounded);
        cr_expect_eq(crc_of_sum(DTYPE_FLOAT16, weight, delta, n, false), t->f16);
        cr_expect_eq(crc_of_sum(DTYPE_FLOAT16, weight, delta, n, true), t->f16_rounded);
        cr_expect_eq(crc_of_sum(DTYPE_FLOAT32, weight, delta, n, false), t->f32);
        free(left);
        free(right);
        free(weight);
        free(delta);
    }
}

Test(merge_kernel, scaled_sums)
{
    float w[600], delta[600], factors[600];
    uint16_t half[600];
    for (unsigned i = 0; i < 600; i++) {
        w[i] = number(3, i);
        delta[i] = number(4, i);
        factors[i] = number(5, i);
    }
    cast_elements(DTYPE_FLOAT32, DTYPE_BFLOAT16, half, w, 600);
    merge_add_scaled(DTYPE_BFLOAT16, half, delta, 600, factors, true);
    merge_add_scaled(DTYPE_FLOAT32, w, delta, 600, factors, false);
    for (unsigned i = 0; i < 600; i++) {
        uint16_t expected;
        float v = number(3, i), kept;
        cr_assert_eq(w[i], (v + delta[i]) * factors[0]);
        cast_elements(DTYPE_FLOAT32, DTYPE_BFLOAT16, &expected, &v, 1);
        cast_elements(DTYPE_BFLOAT16, DTYPE_FLOAT32, &kept, &expected, 1);
        v = (kept + delta[i]) * factors[i];
        cast_elements(DTYPE_FLOAT32, DTYPE_BFLOAT16, &expected, &v, 1);
        cr_assert_eq(half[i], expected);
    }
}

Test(merge_kernel, finite)
{
    const uint16_t bf16[] = {0x7F7F, 0xFF7F, 0x7F80, 0xFFC0}, f16[] = {0x7BFF, 0x7C00};
    const float f32[] = {1e38f, INFINITY};
    const double f64[] = {1e308, (double)NAN};
    cr_expect(merge_all_finite(DTYPE_BFLOAT16, bf16, 2));
    cr_expect_not(merge_all_finite(DTYPE_BFLOAT16, bf16, 3));
    cr_expect_not(merge_all_finite(DTYPE_BFLOAT16, bf16 + 3, 1));
    cr_expect(merge_all_finite(DTYPE_FLOAT16, f16, 1));
    cr_expect_not(merge_all_finite(DTYPE_FLOAT16, f16, 2));
    cr_expect(merge_all_finite(DTYPE_FLOAT32, f32, 1));
    cr_expect_not(merge_all_finite(DTYPE_FLOAT32, f32, 2));
    cr_expect(merge_all_finite(DTYPE_FLOAT64, f64, 1));
    cr_expect_not(merge_all_finite(DTYPE_FLOAT64, f64, 2));
}
