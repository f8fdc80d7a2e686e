#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/element_stats.h"

static uint64_t counts[EXPONENTS];

static element_stats of(dtype d, const void *bytes, uint64_t n)
{
    element_stats m = {0};
    memset(counts, 0, sizeof counts);
    element_stats_add_elements(d, bytes, n, &m, counts);
    return m;
}

static uint64_t count_of(int exponent)
{
    return counts[exponent - EXPONENT_MIN];
}

Test(element_stats, of_finite_numbers)
{
    const float x[] = {1, -2, 0, INFINITY, -0.0f, NAN, 3, -INFINITY, 0x1p-149f};
    const element_stats m = of(DTYPE_FLOAT32, x, 9);
    cr_assert_eq(m.numbers, 6);
    cr_assert_eq(m.zeros, 2);
    cr_assert_float_eq(m.mean, 2.0 / 6, 1e-15);
    cr_assert_float_eq(m.squares, 14 - 4.0 / 6, 1e-14);
    cr_assert_eq(m.least, -2);
    cr_assert_eq(m.most, 3);
    cr_assert_eq(count_of(0), 1);
    cr_assert_eq(count_of(1), 2);
    cr_assert_eq(count_of(-149), 1);
    cr_assert_eq(counts[0], 0);
    const float none[] = {NAN, INFINITY};
    cr_assert_eq(of(DTYPE_FLOAT32, none, 2).numbers, 0);
    cr_assert_eq(of(DTYPE_FLOAT32, none, 0).numbers, 0);
}

Test(element_stats, every_half)
{
    for (unsigned code = 0; code < 0x10000; code++) {
        const uint16_t half = (uint16_t)code;
        const int exponent = (int)(code >> 10 & 31);
        const element_stats m = of(DTYPE_FLOAT16, &half, 1);
        double want = ldexp(1024 + (code & 1023), exponent - 25);
        if (exponent == 0)
            want = ldexp(code & 1023, -24);
        cr_assert_eq(m.numbers, exponent != 31, "%04x", code);
        if (exponent != 31)
            cr_assert_eq(m.mean, code & 0x8000 ? -want : want, "%04x", code);
    }
}

Test(element_stats, floats_of_eight_bits)
{
    const uint8_t e4m3fn[] = {0x38, 0x7e, 0x7f, 0xff, 0x01, 0x80}; /* 1, 448, NaN, NaN, 2^-9, -0 */
    element_stats m = of(DTYPE_FLOAT8_E4M3FN, e4m3fn, 6);
    cr_assert_eq(m.numbers, 4);
    cr_assert_eq(m.most, 448);
    cr_assert_eq(m.zeros, 1);
    cr_assert_eq(count_of(-9), 1);
    const uint8_t e5m2[] = {0x3c, 0x7b, 0x7c, 0x7d, 0x81}; /* 1, 57344, inf, NaN, -2^-16 */
    m = of(DTYPE_FLOAT8_E5M2, e5m2, 5);
    cr_assert_eq(m.numbers, 3);
    cr_assert_eq(m.most, 57344);
    cr_assert_eq(m.least, -0x1p-16);
    const uint8_t fnuz[] = {0x80, 0x40, 0x7f}; /* NaN, 1, 240 */
    m = of(DTYPE_FLOAT8_E4M3FNUZ, fnuz, 3);
    cr_assert_eq(m.numbers, 2);
    cr_assert_eq(m.least, 1);
    cr_assert_eq(m.most, 240);
    const uint8_t e5m2fnuz[] = {0x80, 0x40, 0x7f}; /* NaN, 1, 57344 */
    m = of(DTYPE_FLOAT8_E5M2FNUZ, e5m2fnuz, 3);
    cr_assert_eq(m.numbers, 2);
    cr_assert_eq(m.least, 1);
    cr_assert_eq(m.most, 57344);
    const uint8_t scales[] = {127, 0xff, 0, 254}; /* 1, NaN, 2^-127, 2^127 */
    m = of(DTYPE_FLOAT8_E8M0FNU, scales, 4);
    cr_assert_eq(m.numbers, 3);
    cr_assert_eq(m.least, 0x1p-127);
    cr_assert_eq(m.most, 0x1p127);
}

Test(element_stats, other_numbers)
{
    const int64_t wide[] = {INT64_MIN, INT64_MAX, 0};
    element_stats m = of(DTYPE_INT64, wide, 3);
    cr_assert_eq(m.least, -0x1p63);
    cr_assert_eq(m.most, 0x1p63);
    const uint8_t flags[] = {0, 1, 1};
    m = of(DTYPE_BOOL, flags, 3);
    cr_assert_float_eq(m.mean, 2.0 / 3, 1e-15);
    cr_assert_eq(m.zeros, 1);
    const float parts[] = {1, -4, INFINITY, 2};
    m = of(DTYPE_COMPLEX64, parts, 2);
    cr_assert_eq(m.numbers, 3);
    cr_assert_eq(m.least, -4);
    const uint16_t brain[] = {0x3f80, 0xc000, 0x7f80};
    m = of(DTYPE_BFLOAT16, brain, 3);
    cr_assert_eq(m.numbers, 2);
    cr_assert_eq(m.mean, -0.5);
    cr_assert_eq(of(DTYPE_BITS8, flags, 3).numbers, 0);
}

/* Far from zero a variance of squares less the square of the mean has no digit that is right; at any
 * alignment, in parts that are added as one. */
Test(element_stats, digits_that_are_right)
{
    enum { N = 70001 };
    double *x = malloc(N * sizeof *x);
    uint8_t *bytes = malloc(N * sizeof *x + 1);
    uint64_t seed = 1;
    long double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        x[i] = 1e9 + (double)(seed >> 40) * 0x1p-24;
        sum += x[i];
    }
    for (int i = 0; i < N; i++)
        squares += (x[i] - sum / N) * (x[i] - sum / N);
    for (unsigned skew = 0; skew < 2; skew++) {
        memcpy(bytes + skew, x, N * sizeof *x);
        const element_stats whole = of(DTYPE_FLOAT64, bytes + skew, N);
        cr_assert_float_eq(whole.mean, (double)(sum / N), 1e-6);
        cr_assert_float_eq(whole.squares / (double)squares, 1, 1e-7);
        element_stats parts = {0};
        for (uint64_t at = 0; at < N; at += 16384) {
            element_stats m =
                of(DTYPE_FLOAT64, bytes + skew + at * sizeof *x, N - at < 16384 ? N - at : 16384);
            element_stats_add(&parts, &m);
        }
        cr_assert_eq(parts.numbers, N);
        cr_assert_eq(parts.least, whole.least);
        cr_assert_float_eq(parts.squares / (double)squares, 1, 1e-7);
    }
    free(bytes);
    free(x);
}

/* Sums that overflow are of finite numbers nevertheless. */
Test(element_stats, large_numbers)
{
    const double x[] = {0x1.8p1023, 0x1.8p1023, -0x1p1023};
    const element_stats m = of(DTYPE_FLOAT64, x, 3);
    cr_assert_eq(m.numbers, 3);
    cr_assert_eq(m.most, 0x1.8p1023);
    cr_assert_eq(m.least, -0x1p1023);
    cr_assert_eq(count_of(1023), 3);
}
