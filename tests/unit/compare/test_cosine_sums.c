/* Sums of products, against arithmetic. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/cosine_sums.h"

#define NELEMS 40000u /* more than two steps in floats */

static widener widener_of(dtype d)
{
    widener w;
    cr_assert(widener_init(&w, d));
    return w;
}

/* a = 1, 2, ..., period, 1, 2, ...; b = 2, 2, 2, ... */
static void check_sums(dtype of_a, const void *a, dtype of_b, const void *b, uint64_t n,
                       unsigned period)
{
    const widener wa = widener_of(of_a), wb = widener_of(of_b);
    cosine_sums s = {0}, expected = {0};
    for (uint64_t i = 0; i < n; i++) {
        const double x = (double)(i % period + 1);
        expected.ab += 2 * x;
        expected.aa += x * x;
        expected.bb += 4;
    }
    cosine_sums_add_elements(&wa, &wb, a, b, n, &s);
    cr_expect_eq(s.ab, expected.ab);
    cr_expect_eq(s.aa, expected.aa);
    cr_expect_eq(s.bb, expected.bb);
    cr_expect_eq(s.not_finite, 0);
}

Test(cosine_sums, exact_in_floats_and_doubles)
{
    static float a[NELEMS], b[NELEMS];
    static double c[NELEMS], d[NELEMS];
    for (unsigned i = 0; i < NELEMS; i++) {
        c[i] = a[i] = (float)(i % 1000 + 1);
        d[i] = b[i] = 2;
    }
    static const uint64_t sizes[] = {1, 7, 16, 1023, 1024, 1025, NELEMS};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_sums(DTYPE_FLOAT32, a, DTYPE_FLOAT32, b, sizes[i], 1000);
        check_sums(DTYPE_FLOAT64, c, DTYPE_FLOAT64, d, sizes[i], 1000);
        check_sums(DTYPE_FLOAT32, a, DTYPE_FLOAT64, d, sizes[i], 1000);
    }
}

Test(cosine_sums, exact_in_16_bits)
{
    /* 1 to 8, and 2, of both types */
    static const uint16_t brains[] = {0x3f80, 0x4000, 0x4040, 0x4080,
                                      0x40a0, 0x40c0, 0x40e0, 0x4100};
    static const uint16_t halves[] = {0x3c00, 0x4000, 0x4200, 0x4400,
                                      0x4500, 0x4600, 0x4700, 0x4800};
    static uint16_t of_brains[NELEMS], of_halves[NELEMS], two[NELEMS];
    for (unsigned i = 0; i < NELEMS; i++) {
        of_brains[i] = brains[i % 8];
        of_halves[i] = halves[i % 8];
        two[i] = 0x4000;
    }
    static const uint64_t sizes[] = {8, 1024, NELEMS};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_sums(DTYPE_BFLOAT16, of_brains, DTYPE_BFLOAT16, two, sizes[i], 8);
        check_sums(DTYPE_FLOAT16, of_halves, DTYPE_FLOAT16, two, sizes[i], 8);
        check_sums(DTYPE_BFLOAT16, of_brains, DTYPE_FLOAT16, two, sizes[i], 8);
    }
}

/* Against sums of one element per call, which are made in doubles. */
static void check_as_doubles(dtype d, const uint16_t *a, const uint16_t *b, uint64_t n)
{
    const widener w = widener_of(d);
    cosine_sums s = {0}, expected = {0};
    cosine_sums_add_elements(&w, &w, (const uint8_t *)a, (const uint8_t *)b, n, &s);
    for (uint64_t i = 0; i < n; i++)
        cosine_sums_add_elements(&w, &w, (const uint8_t *)(a + i), (const uint8_t *)(b + i), 1,
                                 &expected);
    cr_expect_eq(s.not_finite, expected.not_finite);
    cr_expect_float_eq(s.ab, expected.ab, 1e-7 * expected.aa);
    cr_expect_float_eq(s.aa, expected.aa, 1e-7 * expected.aa);
    cr_expect_float_eq(s.bb, expected.bb, 1e-7 * expected.bb);
}

/* Subnormal numbers, infinities and NaN are among them. */
Test(cosine_sums, every_number_of_16_bits)
{
    static uint16_t a[1 << 16], b[1 << 16];
    for (unsigned i = 0; i < 1 << 16; i++) {
        a[i] = (uint16_t)i;
        b[i] = (uint16_t)(i * 40503u);
    }
    for (unsigned first = 0; first < 1 << 16; first += 1024) {
        check_as_doubles(DTYPE_FLOAT16, a + first, a + first, 1024);
        check_as_doubles(DTYPE_BFLOAT16, a + first, a + first, 1024);
    }
    check_as_doubles(DTYPE_FLOAT16, a, b, 1 << 16);
    check_as_doubles(DTYPE_BFLOAT16, a, b, 1 << 16);
}

Test(cosine_sums, leaves_out_what_is_not_finite)
{
    static float a[2048], b[2048];
    const widener w = widener_of(DTYPE_FLOAT32);
    cosine_sums s = {0};
    for (unsigned i = 0; i < 2048; i++)
        a[i] = b[i] = 1;
    a[3] = NAN;
    b[5] = INFINITY;
    a[2000] = -INFINITY;
    cosine_sums_add_elements(&w, &w, (const uint8_t *)a, (const uint8_t *)b, 2048, &s);
    cr_expect_eq(s.not_finite, 3);
    cr_expect_eq(s.spoilt, 2);
    cr_expect_eq(s.ab, 2045);
    cr_expect_eq(s.aa, 2045);

    double large[2] = {1e200, 1}, one[2] = {1, 1};
    const widener wide = widener_of(DTYPE_FLOAT64);
    s = (cosine_sums){0};
    cosine_sums_add_elements(&wide, &wide, (const uint8_t *)large, (const uint8_t *)one, 2, &s);
    cr_expect_eq(s.not_finite, 1);
    cr_expect_eq(s.spoilt, 0);
    cr_expect_eq(s.ab, 1);
}

Test(cosine_sums, measures)
{
    /* b = (3, 4), a = b + 10 * (4, -3), which is at a right angle: the projection stays 1 */
    const cosine_sums grown = {.ab = 25, .aa = 25 * 101, .bb = 25};
    cr_expect_float_eq(cosine_sums_cosine(&grown), 1 / sqrt(101), 1e-15);
    cr_expect_eq(cosine_sums_projection(&grown), 1);
    cr_expect_eq(cosine_sums_score(&grown), 1);
    const cosine_sums opposite = {.ab = -6, .aa = 9, .bb = 4};
    cr_expect_eq(cosine_sums_cosine(&opposite), -1);
    const cosine_sums zero = {.bb = 4};
    cr_expect(isnan(cosine_sums_cosine(&zero)));
    cosine_sums sum = grown;
    cosine_sums_add(&sum, &opposite);
    cr_expect_eq(sum.ab, 19);
}

Test(cosine_sums, not_of_packed_or_bits)
{
    widener w;
    cr_expect(!widener_init(&w, DTYPE_FLOAT4_E2M1FN_X2));
    cr_expect(widener_init(&w, DTYPE_FLOAT8_E4M3FN));
}
