#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/compare_elements.h"

static const compare_rule exact = {0};

static compare_stats compare_floats(const compare_rule *rule, const float *a, const float *b,
                                    size_t n)
{
    compare_stats s = {0};
    compare_elements(DTYPE_FLOAT32, rule, (const uint8_t *)a, (const uint8_t *)b, n, 100, &s);
    return s;
}

Test(compare, equal_is_bit_for_bit)
{
    const float a[] = {1, NAN, INFINITY, 0.0f};
    const float b[] = {1, NAN, INFINITY, -0.0f};
    cr_assert_eq(compare_floats(&exact, a, a, 4).differing, 0);
    const compare_stats s = compare_floats(&exact, a, b, 4);
    cr_assert_eq(s.differing, 1);
    cr_assert_eq(s.first, 103);
    cr_assert_float_eq(s.largest, 0, 0);
}

Test(compare, the_first_and_the_largest)
{
    enum { N = 5000 };
    float *a = calloc(N, sizeof *a), *b = calloc(N, sizeof *b);
    for (size_t i = 0; i < N; i++)
        a[i] = b[i] = (float)i;
    b[777] += 1;
    b[4999] -= 3;
    b[1024] = NAN;
    const compare_stats s = compare_floats(&exact, a, b, N);
    cr_assert_eq(s.differing, 3);
    cr_assert_eq(s.first, 877);
    cr_assert_eq(s.not_numbers, 1);
    cr_assert_eq(s.nans, 1);
    cr_assert_float_eq(s.largest, 3, 0);
    char text[64];
    cr_assert_str_eq(compare_print(DTYPE_FLOAT32, s.first_a, text, sizeof text), "777");
    cr_assert_str_eq(compare_print(DTYPE_FLOAT32, s.first_b, text, sizeof text), "778");
    free(a);
    free(b);
}

Test(compare, tolerances_are_those_of_allclose)
{
    const compare_rule rule = {.atol = 0.5, .rtol = 0.25};
    const float a[] = {1.0f, 2.0f, 2.0f, NAN, INFINITY, INFINITY, NAN, 1e30f};
    const float b[] = {2.0f, 2.8f, 6.0f, NAN, INFINITY, -INFINITY, 0, INFINITY};
    const compare_stats s = compare_floats(&rule, a, b, 8);
    /* |1-2| <= 0.5 + 0.5; |2-2.8| <= 0.5 + 0.7; |2-6| > 0.5 + 1.5 */
    cr_assert_eq(s.differing, 4);
    cr_assert_eq(s.first, 102);
    cr_assert_eq(s.not_numbers, 3);
    cr_assert_eq(s.nans, 1);
    cr_assert_float_eq(s.largest, 4, 0);
}

/* A half that is infinite on both sides is no number, and no NaN. */
Test(compare, halves_of_complex_numbers_that_are_infinite_on_both_sides)
{
    const float a[] = {1, INFINITY, NAN, 2};
    const float b[] = {2, INFINITY, 1, 2};
    compare_stats s = {0};
    cr_assert(compare_elements(DTYPE_COMPLEX64, &exact, (const uint8_t *)a, (const uint8_t *)b, 2, 0, &s));
    cr_assert_eq(s.differing, 2);
    cr_assert_eq(s.not_numbers, 2);
    cr_assert_eq(s.nans, 1);
    cr_assert_float_eq(s.largest, 1, 0);
}

Test(compare, integers_are_never_close)
{
    const compare_rule rule = {.atol = 10, .rtol = 1};
    const int64_t a[] = {1, -5, INT64_MAX}, b[] = {1, -6, INT64_MAX - 1};
    compare_stats s = {0};
    compare_elements(DTYPE_INT64, &rule, (const uint8_t *)a, (const uint8_t *)b, 3, 0, &s);
    cr_assert_eq(s.differing, 2);
    cr_assert_float_eq(s.largest, 1, 0);
    char text[64];
    cr_assert_str_eq(compare_print(DTYPE_INT64, (const uint8_t *)&a[2], text, sizeof text),
                     "9223372036854775807");
    const int8_t c[] = {-128}, d[] = {127};
    s = (compare_stats){0};
    compare_elements(DTYPE_INT8, &exact, (const uint8_t *)c, (const uint8_t *)d, 1, 0, &s);
    cr_assert_float_eq(s.largest, 255, 0);
    cr_assert_str_eq(compare_print(DTYPE_INT8, (const uint8_t *)c, text, sizeof text), "-128");
}

Test(compare, complex_elements_count_once)
{
    const float a[] = {1, 2, 3, 4}, b[] = {1, 2.5f, 3, 4};
    compare_stats s = {0};
    compare_elements(DTYPE_COMPLEX64, &exact, (const uint8_t *)a, (const uint8_t *)b, 2, 0, &s);
    cr_assert_eq(s.differing, 1);
    cr_assert_eq(s.first, 0);
    cr_assert_float_eq(s.largest, 0.5, 0);
    char text[64];
    cr_assert_str_eq(compare_print(DTYPE_COMPLEX64, s.first_b, text, sizeof text), "1+2.5j");
}

Test(compare, narrow_floats_and_what_is_no_number)
{
    const uint16_t a[] = {0x3f80, 0x4000}, b[] = {0x3f80, 0x4080}; /* bfloat16 1, 2; 1, 4 */
    const uint8_t bits[] = {0xab, 0x01};
    compare_stats s = {0};
    char text[64];
    compare_elements(DTYPE_BFLOAT16, &exact, (const uint8_t *)a, (const uint8_t *)b, 2, 0, &s);
    cr_assert_eq(s.first, 1);
    cr_assert_float_eq(s.largest, 2, 0);
    cr_assert_str_eq(compare_print(DTYPE_BOOL, bits + 1, text, sizeof text), "true");
    cr_assert_str_eq(compare_print(DTYPE_BITS16, bits, text, sizeof text), "0x01ab");
    s = (compare_stats){0};
    compare_elements(DTYPE_BITS8, &exact, bits, bits + 1, 1, 7, &s);
    cr_assert_eq(s.differing, 1);
    cr_assert_eq(s.first, 7);
    cr_assert_float_eq(s.largest, 0, 0);
}

Test(compare, sums_of_parts_are_those_of_the_whole)
{
    enum { N = 3000 };
    uint8_t a[N], b[N];
    for (size_t i = 0; i < N; i++) {
        a[i] = (uint8_t)(i * 7);
        b[i] = (uint8_t)(i % 5 == 3 ? a[i] + i % 11 : a[i]);
    }
    compare_stats whole = {0}, sum = {0};
    compare_elements(DTYPE_UINT8, &exact, a, b, N, 0, &whole);
    for (size_t at = N; at > 0;) { /* in any order */
        const size_t n = at < 700 ? at : 700;
        compare_stats part = {0};
        at -= n;
        compare_elements(DTYPE_UINT8, &exact, a + at, b + at, n, at, &part);
        compare_add(&sum, &part);
    }
    cr_assert_eq(sum.differing, whole.differing);
    cr_assert_eq(sum.first, whole.first);
    cr_assert_float_eq(sum.largest, whole.largest, 0);
    cr_assert_eq(memcmp(sum.first_a, whole.first_a, 1), 0);
}
