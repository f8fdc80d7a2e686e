#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/scan_elements.h"

Test(scan, floats_of_every_width)
{
    const double doubles[] = {1, -0.0, 0, NAN, -INFINITY, INFINITY, -2};
    float floats[7];
    for (int i = 0; i < 7; i++)
        floats[i] = (float)doubles[i];
    const uint16_t half[] = {0x3c00, 0x8000, 0, 0x7e00, 0xfc00, 0x7c00, 0xc000};
    const uint16_t brain[] = {0x3f80, 0x8000, 0, 0x7fc0, 0xff80, 0x7f80, 0xc000};
    const struct {
        dtype d;
        const void *bytes;
    } all[] = {{DTYPE_FLOAT64, doubles},
               {DTYPE_FLOAT32, floats},
               {DTYPE_FLOAT16, half},
               {DTYPE_BFLOAT16, brain}};
    for (size_t i = 0; i < 4; i++) {
        scan_counts s = {0};
        scan_add_elements(all[i].d, all[i].bytes, 7, &s);
        cr_assert_eq(s.nelems, 7);
        cr_assert_eq(s.nan, 1);
        cr_assert_eq(s.inf, 2);
        cr_assert(s.negative);
        cr_assert_eq(s.zeros, 0);
    }
}

Test(scan, nothing_below_zero)
{
    const float fine[] = {0, -0.0f, 3, INFINITY, NAN, -NAN};
    scan_counts s = {0};
    scan_add_elements(DTYPE_FLOAT32, (const uint8_t *)fine, 6, &s);
    cr_assert_not(s.negative);
    cr_assert_eq(s.nan, 2);
    const float below[] = {1, -1e-45f};
    s = (scan_counts){0};
    scan_add_elements(DTYPE_FLOAT32, (const uint8_t *)below, 2, &s);
    cr_assert(s.negative);
    cr_assert_eq(s.nan + s.inf, 0);
}

/* One odd element anywhere in long runs, at any alignment. */
Test(scan, one_in_many)
{
    enum { N = 3 * 4096 + 5 };
    uint8_t *memory = calloc(N + 1, sizeof(float));
    for (size_t skew = 0; skew < 4; skew++) {
        float *odd = malloc(sizeof *odd);
        for (size_t at = 0; at < N; at += 1 + at / 3) {
            uint8_t *bytes = memory + skew;
            memset(memory, 0, (N + 1) * sizeof(float));
            *odd = NAN;
            memcpy(bytes + at * sizeof *odd, odd, sizeof *odd);
            scan_counts s = {0};
            scan_add_elements(DTYPE_FLOAT32, bytes, N, &s);
            cr_assert_eq(s.nan, 1);
            cr_assert(s.zeros < N);
            *odd = 0;
            memcpy(bytes + at * sizeof *odd, odd, sizeof *odd);
            s = (scan_counts){0};
            scan_add_elements(DTYPE_FLOAT32, bytes, N, &s);
            cr_assert_eq(s.zeros, N);
        }
        free(odd);
    }
    free(memory);
}

/* Every code of one byte, alone among many ordinary ones, in each kind. */
Test(scan, eight_bits_one_in_many)
{
    static const struct {
        dtype d;
        uint8_t nan,
            infinity; /* the lowest code of NaN without its sign, 0 where it is 0x80 alone */
    } kinds[] = {{DTYPE_FLOAT8_E4M3FN, 0x7f, 0},
                 {DTYPE_FLOAT8_E5M2, 0x7d, 0x7c},
                 {DTYPE_FLOAT8_E4M3FNUZ, 0, 0},
                 {DTYPE_FLOAT8_E5M2FNUZ, 0, 0}};
    enum { N = 2 * 4096 + 3 };
    uint8_t *codes = malloc(N);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (unsigned code = 0; code < 256; code++) {
            const unsigned magnitude = code & 0x7f;
            const bool nan = kinds[k].nan == 0 ? code == 0x80 : magnitude >= kinds[k].nan;
            const bool infinite = kinds[k].infinity != 0 && magnitude == kinds[k].infinity;
            scan_counts s = {0};
            memset(codes, 0x31, N);
            codes[N - 1 - 20 * code] = (uint8_t)code;
            scan_add_elements(kinds[k].d, codes, N, &s);
            cr_assert_eq(s.nelems, N);
            cr_assert_eq(s.nan, nan);
            cr_assert_eq(s.inf, infinite);
            cr_assert_eq(s.negative != 0, !nan && code > 0x80);
            cr_assert(s.zeros < N);
        }
        scan_counts s = {0};
        memset(codes, 0, N);
        scan_add_elements(kinds[k].d, codes, N, &s);
        cr_assert_eq(s.zeros, N);
    }
    free(codes);
}

Test(scan, complex_and_eight_bits)
{
    const float complex64[] = {1, NAN, -1, 2};
    scan_counts s = {0};
    scan_add_elements(DTYPE_COMPLEX64, (const uint8_t *)complex64, 2, &s);
    cr_assert_eq(s.nelems, 4);
    cr_assert_eq(s.nan, 1);
    const uint8_t e4m3fn[] = {0x7f, 0xff, 0x7e, 0x00, 0x80, 0x81};
    s = (scan_counts){0};
    scan_add_elements(DTYPE_FLOAT8_E4M3FN, e4m3fn, 6, &s);
    cr_assert_eq(s.nan, 2);
    cr_assert_eq(s.inf, 0);
    cr_assert_eq(s.zeros, 2);
    cr_assert(s.negative);
    const uint8_t e5m2[] = {0x7c, 0xfc, 0x7d, 0xff};
    s = (scan_counts){0};
    scan_add_elements(DTYPE_FLOAT8_E5M2, e5m2, 4, &s);
    cr_assert_eq(s.inf, 2);
    cr_assert_eq(s.nan, 2);
    const uint8_t fnuz[] = {0x80, 0x7f, 0};
    s = (scan_counts){0};
    scan_add_elements(DTYPE_FLOAT8_E4M3FNUZ, fnuz, 3, &s);
    cr_assert_eq(s.nan, 1);
    cr_assert_eq(s.inf, 0);
    cr_assert_not(s.negative);
    const uint8_t e8m0[] = {0, 0x7f, 0x80, 0xfe, 0xff, 0xff};
    s = (scan_counts){0};
    scan_add_elements(DTYPE_FLOAT8_E8M0FNU, e8m0, 6, &s);
    cr_assert_eq(s.nelems, 6);
    cr_assert_eq(s.nan, 2);
    cr_assert_eq(s.inf, 0);
    cr_assert_eq(s.zeros, 0);
    cr_assert_not(s.negative);
    cr_assert_not(scan_supported(DTYPE_INT32));
    cr_assert_not(scan_supported(DTYPE_FLOAT4_E2M1FN_X2));
}

Test(scan, constant)
{
    float ones[5000];
    for (int i = 0; i < 5000; i++)
        ones[i] = 1;
    scan_counts s = {0}, other = {0}, none = {0};
    scan_add_elements(DTYPE_FLOAT32, (const uint8_t *)ones, 3000, &s);
    scan_add_elements(DTYPE_FLOAT32, (const uint8_t *)ones, 2000, &s);
    cr_assert(s.constant);
    scan_add_elements(DTYPE_FLOAT32, (const uint8_t *)ones, 10, &other);
    scan_add(&s, &other);
    scan_add(&s, &none);
    scan_add(&none, &s);
    cr_assert(s.constant && none.constant);
    cr_assert_eq(none.nelems, 5010);

    /* Constant parts of different numbers; one odd element at the end; a part that begins otherwise. */
    ones[0] = 2;
    other = (scan_counts){0};
    scan_add_elements(DTYPE_FLOAT32, (const uint8_t *)ones, 1, &other);
    cr_assert(other.constant);
    scan_add(&s, &other);
    cr_assert_not(s.constant);
    ones[0] = 1;
    ones[4999] = 3;
    s = (scan_counts){0};
    scan_add_elements(DTYPE_FLOAT32, (const uint8_t *)ones, 5000, &s);
    cr_assert_not(s.constant);
    s = (scan_counts){0};
    scan_add_elements(DTYPE_FLOAT32, (const uint8_t *)ones, 4999, &s);
    scan_add_elements(DTYPE_FLOAT32, (const uint8_t *)(ones + 4999), 1, &s);
    cr_assert_not(s.constant);
}
