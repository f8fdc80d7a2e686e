#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/change_sums.h"

static change_sums sum_floats(const float *a, const float *b, size_t n)
{
    change_sums s = {0};
    change_sums_add_elements(DTYPE_FLOAT32, (const uint8_t *)a, (const uint8_t *)b, n, &s);
    return s;
}

Test(change_sums, norms_of_a_and_of_the_difference)
{
    const float a[] = {3, 0, 4}, b[] = {3, 12, 9};
    const change_sums s = sum_floats(a, b, 3);
    cr_assert_eq(s.n, 3);
    cr_assert_float_eq(change_sums_norm(s.aa), 5, 0);
    cr_assert_float_eq(change_sums_norm(s.distance), 13, 0);
    cr_assert_float_eq(change_sums_relative(&s), 2.6, 0);
}

/* Of 1, 2, ... n, whatever the parts; the difference is 0.5 everywhere. */
Test(change_sums, parts_add_up)
{
    enum { N = 5003 };
    float *a = calloc(N, sizeof *a), *b = calloc(N, sizeof *b);
    for (size_t i = 0; i < N; i++) {
        a[i] = (float)(i + 1);
        b[i] = a[i] + 0.5f;
    }
    change_sums parts = {0};
    for (size_t at = 0; at < N; at += 777) {
        const change_sums one = sum_floats(a + at, b + at, N - at < 777 ? N - at : 777);
        change_sums_add(&parts, &one);
    }
    const double squares = (double)N * (N + 1) * (2.0 * N + 1) / 6;
    cr_assert_eq(parts.n, N);
    cr_assert_float_eq(parts.aa, squares, 0);
    cr_assert_float_eq(parts.distance, 0.25 * N, 0);
    free(a);
    free(b);
}

Test(change_sums, complex_elements_are_two_numbers)
{
    const float a[] = {3, 4}, b[] = {3, 3.5f};
    change_sums s = {0};
    change_sums_add_elements(DTYPE_COMPLEX64, (const uint8_t *)a, (const uint8_t *)b, 1, &s);
    cr_assert_eq(s.n, 1);
    cr_assert_float_eq(change_sums_relative(&s), 0.1, 0);
}

Test(change_sums, no_ratio_of_zero_nan_or_infinity)
{
    const float zero[] = {0, 0}, one[] = {1, 0}, nan[] = {NAN, 1}, infinite[] = {1, INFINITY};
    change_sums s = sum_floats(zero, one, 2);
    cr_assert(isnan(change_sums_relative(&s)));
    cr_assert_float_eq(change_sums_norm(s.distance), 1, 0);
    s = sum_floats(nan, one, 2);
    cr_assert(isnan(change_sums_relative(&s)));
    s = sum_floats(one, infinite, 2);
    cr_assert(isnan(change_sums_relative(&s)));
    s = sum_floats(infinite, infinite, 2);
    cr_assert(isnan(change_sums_relative(&s)));
}

Test(change_sums, integers_have_none)
{
    const int64_t a[] = {1, 2}, b[] = {3, 4};
    change_sums s = {0};
    change_sums_add_elements(DTYPE_INT64, (const uint8_t *)a, (const uint8_t *)b, 2, &s);
    cr_assert_eq(s.n, 0);
    cr_assert_not(change_sums_has(DTYPE_INT64));
    cr_assert_not(change_sums_has(DTYPE_BOOL));
    cr_assert(change_sums_has(DTYPE_FLOAT8_E4M3FN));
}
