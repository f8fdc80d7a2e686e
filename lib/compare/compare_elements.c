#include "compare/compare_elements.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "state/cast.h"

/* Compares element by element if some bytes differ. */
#define BLOCK 512u

/* ---- numbers ---- */

/* A complex element counts as two numbers of its half's dtype. */
static dtype number_dtype(dtype d, unsigned *per_element)
{
    *per_element = 2;
    switch (d) {
    case DTYPE_COMPLEX32:
        return DTYPE_FLOAT16;
    case DTYPE_BCOMPLEX32:
        return DTYPE_BFLOAT16;
    case DTYPE_COMPLEX64:
        return DTYPE_FLOAT32;
    case DTYPE_COMPLEX128:
        return DTYPE_FLOAT64;
    default:
        *per_element = 1;
        return d;
    }
}

static double integer(const uint8_t *at, unsigned nbytes, bool is_signed)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < nbytes; i++)
        bits |= (uint64_t)at[i] << 8 * i;
    if (!is_signed)
        return (double)bits;
    const unsigned unused = 64 - 8 * nbytes;
    return (double)((int64_t)(bits << unused) >> unused);
}

/* False for dtypes that are no numbers. At most 2 * BLOCK. */
static bool to_doubles(dtype d, const uint8_t *from, size_t n, double *to)
{
    const dtype_info *info = dtype_get(d);
    float narrow[2 * BLOCK];
    if (d == DTYPE_FLOAT64) {
        memcpy(to, from, n * sizeof *to);
        return true;
    }
    if (info->kind == DTYPE_IS_INT || info->kind == DTYPE_IS_BOOL) {
        const bool is_signed = info->name[0] == 'i';
        for (size_t i = 0; i < n; i++)
            to[i] = integer(from + i * info->itemsize_bytes, info->itemsize_bytes, is_signed);
        return true;
    }
    if (d == DTYPE_FLOAT32)
        memcpy(narrow, from, n * sizeof *narrow);
    else if (info->kind == DTYPE_IS_FLOAT && cast_supported(d, DTYPE_FLOAT32))
        (void)cast_elements(d, DTYPE_FLOAT32, narrow, from, n);
    else
        return false;
    for (size_t i = 0; i < n; i++)
        to[i] = (double)narrow[i];
    return true;
}

/* ---- comparing ---- */

static bool is_close(const compare_rule *rule, double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b))
        return a == b;
    return fabs(a - b) <= rule->atol + rule->rtol * fabs(b);
}

static void note_difference(compare_stats *s, uint64_t number, const uint8_t *a, const uint8_t *b,
                            size_t itemsize)
{
    if (s->differing++ > 0 && s->first <= number)
        return;
    s->first = number;
    memcpy(s->first_a, a, itemsize);
    memcpy(s->first_b, b, itemsize);
}

static void compare_block(dtype d, const compare_rule *rule, const uint8_t *a, const uint8_t *b,
                          size_t n, uint64_t first, compare_stats *s)
{
    unsigned per;
    const dtype number = number_dtype(d, &per);
    const dtype_class kind = (dtype_class)dtype_get(d)->kind;
    const size_t itemsize = dtype_get(d)->itemsize_bytes;
    const bool tolerant =
        (rule->atol > 0 || rule->rtol > 0) && (kind == DTYPE_IS_FLOAT || kind == DTYPE_IS_COMPLEX);
    double x[2 * BLOCK], y[2 * BLOCK];
    const bool numbers = to_doubles(number, a, n * per, x) && to_doubles(number, b, n * per, y);
    for (size_t i = 0; i < n; i++) {
        bool same = memcmp(a + i * itemsize, b + i * itemsize, itemsize) == 0;
        if (!same && tolerant && numbers) {
            same = true;
            for (size_t k = i * per; k < (i + 1) * per; k++)
                same = same && is_close(rule, x[k], y[k]);
        }
        if (same)
            continue;
        note_difference(s, first + i, a + i * itemsize, b + i * itemsize, itemsize);
        for (size_t k = i * per; numbers && k < (i + 1) * per; k++) {
            const double apart = fabs(x[k] - y[k]);
            s->nans += isnan(x[k]) || isnan(y[k]);
            if (!isfinite(x[k]) || !isfinite(y[k]))
                s->not_numbers++;
            else if (apart > s->largest)
                s->largest = apart;
        }
    }
}

bool compare_elements(dtype d, const compare_rule *rule, const uint8_t *a, const uint8_t *b,
                      uint64_t n, uint64_t first, compare_stats *stats)
{
    const size_t itemsize = dtype_get(d)->itemsize_bytes;
    if (memcmp(a, b, n * itemsize) == 0)
        return false;
    for (uint64_t i = 0; i < n; i += BLOCK) {
        const size_t some = n - i < BLOCK ? (size_t)(n - i) : BLOCK;
        const uint8_t *p = a + i * itemsize, *q = b + i * itemsize;
        if (memcmp(p, q, some * itemsize) != 0)
            compare_block(d, rule, p, q, some, first + i, stats);
    }
    return true;
}

void compare_add(compare_stats *to, const compare_stats *from)
{
    if (from->differing > 0 && (to->differing == 0 || from->first < to->first)) {
        to->first = from->first;
        memcpy(to->first_a, from->first_a, sizeof to->first_a);
        memcpy(to->first_b, from->first_b, sizeof to->first_b);
    }
    to->differing += from->differing;
    to->not_numbers += from->not_numbers;
    to->nans += from->nans;
    if (from->largest > to->largest)
        to->largest = from->largest;
}

char *compare_print(dtype d, const uint8_t *element, char *text, size_t capacity)
{
    const dtype_info *info = dtype_get(d);
    const int digits = d == DTYPE_FLOAT64 || d == DTYPE_COMPLEX128 ? 17 : 9;
    unsigned per;
    double x[2];
    const dtype number = number_dtype(d, &per);
    const bool numbers = to_doubles(number, element, per, x);
    if (d == DTYPE_BOOL) {
        snprintf(text, capacity, "%s", element[0] != 0 ? "true" : "false");
    } else if (info->kind == DTYPE_IS_INT && info->itemsize_bytes == 8) {
        uint64_t bits; /* more than a double holds */
        memcpy(&bits, element, sizeof bits);
        if (info->name[0] == 'i')
            snprintf(text, capacity, "%" PRId64, (int64_t)bits);
        else
            snprintf(text, capacity, "%" PRIu64, bits);
    } else if (numbers && per == 2) {
        snprintf(text, capacity, "%.*g%+.*gj", digits, x[0], digits, x[1]);
    } else if (numbers) {
        snprintf(text, capacity, "%.*g", digits, x[0]);
    } else {
        size_t at = (size_t)snprintf(text, capacity, "0x");
        for (unsigned i = info->itemsize_bytes; i-- > 0 && at + 3 < capacity;)
            at += (size_t)snprintf(text + at, capacity - at, "%02x", element[i]);
    }
    return text;
}
