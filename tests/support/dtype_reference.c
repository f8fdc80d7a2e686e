#include "tests/support/dtype_reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/cast.h"

typedef enum specials { IEEE, ONE_NAN, FNUZ, EXPONENT } specials;

typedef struct form {
    dtype d;
    unsigned exponent_bits, mantissa_bits;
    int bias;
    specials kind;
} form;

static const form forms[] = {
    {DTYPE_FLOAT64, 11, 52, 1023, IEEE},         {DTYPE_FLOAT32, 8, 23, 127, IEEE},
    {DTYPE_BFLOAT16, 8, 7, 127, IEEE},           {DTYPE_FLOAT16, 5, 10, 15, IEEE},
    {DTYPE_FLOAT8_E5M2, 5, 2, 15, IEEE},         {DTYPE_FLOAT8_E4M3FN, 4, 3, 7, ONE_NAN},
    {DTYPE_FLOAT8_E4M3FNUZ, 4, 3, 8, FNUZ},      {DTYPE_FLOAT8_E5M2FNUZ, 5, 2, 16, FNUZ},
    {DTYPE_FLOAT8_E8M0FNU, 8, 0, 127, EXPONENT},
};

static const form *form_of(dtype d)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (forms[i].d == d)
            return &forms[i];
    return NULL;
}

static uint64_t bits_of(const uint8_t *element, unsigned nbytes)
{
    uint64_t bits = 0;
    for (unsigned i = nbytes; i-- > 0;)
        bits = bits << 8 | element[i];
    return bits;
}

double reference_decode(dtype d, const uint8_t *element)
{
    const form *f = form_of(d);
    const unsigned width = dtype_get(d)->itemsize_bytes * 8u;
    const uint64_t bits = bits_of(element, width / 8);
    const uint64_t top = (UINT64_C(1) << f->exponent_bits) - 1;
    const uint64_t mantissa = bits & ((UINT64_C(1) << f->mantissa_bits) - 1);
    const uint64_t exponent = bits >> f->mantissa_bits & top;
    if (f->kind == EXPONENT)
        return bits == 0xFF ? NAN : ldexp(1, (int)bits - f->bias);
    const double sign = bits >> (width - 1) != 0 ? -1 : 1;
    if (f->kind == IEEE && exponent == top)
        return mantissa != 0 ? NAN : sign * INFINITY;
    if ((f->kind == ONE_NAN && exponent == top && mantissa == 7) ||
        (f->kind == FNUZ && bits == 0x80))
        return NAN;
    const double fraction = ldexp((double)mantissa, -(int)f->mantissa_bits);
    return sign * (exponent == 0 ? ldexp(fraction, 1 - f->bias)
                                 : ldexp(1 + fraction, (int)exponent - f->bias));
}

/* The largest finite value. */
static double largest(const form *f)
{
    const int top = (1 << f->exponent_bits) - 1 - f->bias;
    const double step = ldexp(1, -(int)f->mantissa_bits);
    return f->kind == IEEE      ? ldexp(2 - step, top - 1)
           : f->kind == ONE_NAN ? ldexp(2 - 2 * step, top)
                                : ldexp(2 - step, top);
}

/* A power of two: halfway and more goes up, but for the range below the least float32. */
static double nearest_power(double x, bool *beyond)
{
    int e;
    const double a = fabs(x);
    if (a < ldexp(1, -126))
        return ldexp(1, a > ldexp(1, -127) ? -126 : -127);
    (void)frexp(a, &e);
    if (a >= ldexp(1.5, e - 1))
        e++;
    *beyond = e - 1 > 127;
    return *beyond ? NAN : ldexp(1, e - 1);
}

/* What x, a finite float32 or float64, becomes. */
static double nearest(const form *f, double x, bool *beyond)
{
    int e;
    if (f->kind == EXPONENT)
        return nearest_power(x, beyond);
    (void)frexp(x, &e);
    if (e - 1 < 1 - f->bias)
        e = 2 - f->bias;
    const double step = ldexp(1, e - 1 - (int)f->mantissa_bits);
    double r = rint(fabs(x) / step) * step;
    *beyond = r > largest(f);
    if (*beyond)
        r = f->kind == IEEE ? INFINITY : f->kind == FNUZ ? NAN : largest(f);
    return copysign(r, x);
}

static double special(const form *f, double x)
{
    if (isnan(x) || f->kind == IEEE)
        return x;
    return f->kind == ONE_NAN ? copysign(largest(f), x) : NAN;
}

bool reference_cast_agrees(dtype from, const uint8_t *element, dtype to, const uint8_t *found,
                           uint64_t *lost)
{
    const form *f = form_of(to);
    const double source = reference_decode(from, element);
    double x = source;
    bool beyond = false;
    if (from == DTYPE_FLOAT64) {
        x = (double)(float)x;
        *lost += isfinite(source) && !isfinite(x);
    }
    x = isfinite(x) ? nearest(f, x, &beyond) : special(f, x);
    *lost += beyond;
    const double y = reference_decode(to, found);
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y);
    return x == y && (x != 0 || f->kind == FNUZ || signbit(x) == signbit(y));
}

/* --- comparing --- */

/* Halves of a complex number, each of dtype *half. */
static unsigned numbers_in(dtype d, dtype *half)
{
    *half = d == DTYPE_COMPLEX128   ? DTYPE_FLOAT64
            : d == DTYPE_COMPLEX64  ? DTYPE_FLOAT32
            : d == DTYPE_COMPLEX32  ? DTYPE_FLOAT16
            : d == DTYPE_BCOMPLEX32 ? DTYPE_BFLOAT16
                                    : d;
    return *half == d ? 1 : 2;
}

static bool number_of(dtype d, const uint8_t *element, double *x)
{
    const dtype_info *info = dtype_get(d);
    const uint64_t bits = bits_of(element, info->itemsize_bytes);
    if (form_of(d) != NULL) {
        *x = reference_decode(d, element);
        return true;
    }
    if (info->kind != DTYPE_IS_INT && info->kind != DTYPE_IS_BOOL)
        return false;
    const unsigned width = info->itemsize_bytes * 8u;
    const bool negative = info->name[0] == 'i' && bits >> (width - 1) != 0;
    const uint64_t mask = width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1;
    *x = negative ? -(double)((~bits + 1) & mask) : (double)bits;
    return true;
}

static bool are_close(const compare_rule *rule, double x, double y)
{
    if (isnan(x) || isnan(y))
        return isnan(x) == isnan(y);
    if (isinf(x) || isinf(y))
        return x == y;
    return fabs(x - y) <= rule->atol + rule->rtol * fabs(y);
}

void reference_compare(dtype d, const compare_rule *rule, const uint8_t *a, const uint8_t *b,
                       uint64_t at, compare_stats *sums)
{
    const size_t itemsize = dtype_get(d)->itemsize_bytes;
    dtype half;
    const unsigned per = numbers_in(d, &half);
    const size_t step = itemsize / per;
    double x[2] = {0}, y[2] = {0};
    bool numbers = true, close = true;
    if (memcmp(a, b, itemsize) == 0)
        return;
    for (unsigned i = 0; i < per; i++) {
        numbers = number_of(half, a + i * step, &x[i]) && number_of(half, b + i * step, &y[i]);
        close = close && numbers && are_close(rule, x[i], y[i]);
    }
    if (close && (rule->atol > 0 || rule->rtol > 0) && dtype_get(d)->kind != DTYPE_IS_INT &&
        dtype_get(d)->kind != DTYPE_IS_BOOL)
        return;
    if (sums->differing++ == 0) {
        sums->first = at;
        memcpy(sums->first_a, a, itemsize);
        memcpy(sums->first_b, b, itemsize);
    }
    for (unsigned i = 0; numbers && i < per; i++) {
        if (!isfinite(x[i]) || !isfinite(y[i]))
            sums->not_numbers++, sums->nans += isnan(x[i]) || isnan(y[i]);
        else if (fabs(x[i] - y[i]) > sums->largest)
            sums->largest = fabs(x[i] - y[i]);
    }
}

/* --- checks --- */

static void fail(const char *what, dtype from, dtype to, const uint8_t *element, size_t nbytes)
{
    fprintf(stderr, "%s: %s, %s:", what, dtype_get(from)->name, dtype_get(to)->name);
    for (size_t i = nbytes; i-- > 0;)
        fprintf(stderr, " %02x", element[i]);
    fprintf(stderr, "\n");
    abort();
}

void reference_check_cast(dtype from, dtype to, const uint8_t *elements, uint64_t n)
{
    const size_t from_size = dtype_get(from)->itemsize_bytes;
    const size_t to_size = dtype_get(to)->itemsize_bytes;
    uint64_t lost = 0;
    uint8_t *found = malloc(n * to_size + 1);
    if (found == NULL)
        abort();
    const uint64_t told = cast_elements(from, to, found, elements, n);
    for (uint64_t i = 0; i < n; i++)
        if (!reference_cast_agrees(from, elements + i * from_size, to, found + i * to_size, &lost))
            fail("cast to another value", from, to, elements + i * from_size, from_size);
    if (lost != told)
        fail("another count of elements out of range", from, to, elements, n > 0 ? from_size : 0);
    free(found);
}

void reference_check_compare(dtype d, const compare_rule *rule, const uint8_t *a, const uint8_t *b,
                             uint64_t n)
{
    const size_t itemsize = dtype_get(d)->itemsize_bytes;
    const uint64_t first = 1000;
    compare_stats found = {0}, expected = {0};
    compare_elements(d, rule, a, b, n, first, &found);
    for (uint64_t i = 0; i < n; i++)
        reference_compare(d, rule, a + i * itemsize, b + i * itemsize, first + i, &expected);
    if (found.differing != expected.differing || found.first != expected.first ||
        found.largest != expected.largest || found.not_numbers != expected.not_numbers ||
        found.nans != expected.nans || memcmp(found.first_a, expected.first_a, itemsize) != 0 ||
        memcmp(found.first_b, expected.first_b, itemsize) != 0)
        fail("compared with another result, first difference", d, d, expected.first_a, itemsize);
}
