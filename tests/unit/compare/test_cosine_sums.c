/* Sums of products, against arithmetic. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/cosine_sums.h"

#define NELEMS 3000u /* two whole blocks, and a part that is no multiple of a vector */

static widener widener_of(dtype d)
{
    widener w;
    cr_assert(widener_init(&w, d));
    return w;
}

/* a = 1, 2, 3, ...; b = 2, 2, 2, ... */
static void check_sums(dtype of_a, const void *a, dtype of_b, const void *b, uint64_t n)
{
    const widener wa = widener_of(of_a), wb = widener_of(of_b);
    cosine_sums s = {0};
    const double count = (double)n;
    cosine_sums_add_elements(&wa, &wb, a, b, n, &s);
    cr_expect_eq(s.ab, count * (count + 1));
    cr_expect_eq(s.aa, count * (count + 1) * (2 * count + 1) / 6);
    cr_expect_eq(s.bb, 4 * count);
    cr_expect_eq(s.not_finite, 0);
}

Test(cosine_sums, exact_in_floats_and_doubles)
{
    static float a[NELEMS], b[NELEMS];
    static double c[NELEMS], d[NELEMS];
    for (unsigned i = 0; i < NELEMS; i++) {
        c[i] = a[i] = (float)(i + 1);
        d[i] = b[i] = 2;
    }
    static const uint64_t sizes[] = {1, 7, 16, 1023, 1024, 1025, NELEMS};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_sums(DTYPE_FLOAT32, a, DTYPE_FLOAT32, b, sizes[i]);
        check_sums(DTYPE_FLOAT64, c, DTYPE_FLOAT64, d, sizes[i]);
        check_sums(DTYPE_FLOAT32, a, DTYPE_FLOAT64, d, sizes[i]);
    }
}

Test(cosine_sums, exact_in_16_bits)
{
    /* 1 to 8, and 2, of both types */
    static const uint16_t brains[] = {0x3f80, 0x4000, 0x4040, 0x4080,
                                      0x40a0, 0x40c0, 0x40e0, 0x4100};
    static const uint16_t halves[] = {0x3c00, 0x4000, 0x4200, 0x4400,
                                      0x4500, 0x4600, 0x4700, 0x4800};
    uint16_t two[8];
    for (unsigned i = 0; i < 8; i++)
        two[i] = 0x4000;
    check_sums(DTYPE_BFLOAT16, brains, DTYPE_BFLOAT16, two, 8);
    check_sums(DTYPE_FLOAT16, halves, DTYPE_FLOAT16, two, 8);
    check_sums(DTYPE_BFLOAT16, brains, DTYPE_FLOAT16, two, 8);

    static uint16_t many[2 * 1024];
    const widener w = widener_of(DTYPE_BFLOAT16);
    cosine_sums s = {0};
    for (unsigned i = 0; i < 2 * 1024; i++)
        many[i] = brains[i % 8];
    cosine_sums_add_elements(&w, &w, (const uint8_t *)many, (const uint8_t *)many, 2 * 1024, &s);
    cr_expect_eq(s.ab, 256.0 * 204);
    cr_expect_float_eq(cosine_sums_cosine(&s), 1, 1e-15);
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
    cr_expect_eq(s.ab, 2045);
    cr_expect_eq(s.aa, 2045);

    double large[2] = {1e200, 1}, one[2] = {1, 1};
    const widener wide = widener_of(DTYPE_FLOAT64);
    s = (cosine_sums){0};
    cosine_sums_add_elements(&wide, &wide, (const uint8_t *)large, (const uint8_t *)one, 2, &s);
    cr_expect_eq(s.not_finite, 1);
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
