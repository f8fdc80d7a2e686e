#include "check/element_stats.h"

#include <math.h>
#include <string.h>

/* SCAN_CLONES comes from the build: see scan_elements.c. */

/* Elements converted to doubles per step: they fit the L1 cache. */
#define BLOCK 1024u
/* Parallel sums that compilers vectorize. The order of additions is explicit and equal for every
 * vector width. */
#define LANES 8u

typedef struct block {
    uint32_t n;
    double x[BLOCK];
} block;

/* ---- into doubles ---- */

#define WIDEN(name, type)                                                     \
    SCAN_CLONES static void name(const uint8_t *bytes, uint32_t n, double *x) \
    {                                                                         \
        for (uint32_t i = 0; i < n; i++) {                                    \
            type v;                                                           \
            memcpy(&v, bytes + i * sizeof v, sizeof v);                       \
            x[i] = (double)v;                                                 \
        }                                                                     \
    }

WIDEN(widen_u8, uint8_t)
WIDEN(widen_i8, int8_t)
WIDEN(widen_u16, uint16_t)
WIDEN(widen_i16, int16_t)
WIDEN(widen_u32, uint32_t)
WIDEN(widen_i32, int32_t)
WIDEN(widen_u64, uint64_t)
WIDEN(widen_i64, int64_t)
WIDEN(widen_f32, float)
WIDEN(widen_f64, double)

SCAN_CLONES static void widen_brain(const uint8_t *bytes, uint32_t n, double *x)
{
    for (uint32_t i = 0; i < n; i++) {
        uint16_t v;
        float f;
        memcpy(&v, bytes + i * sizeof v, sizeof v);
        const uint32_t bits = (uint32_t)v << 16;
        memcpy(&f, &bits, sizeof f);
        x[i] = (double)f;
    }
}

/* The half's exponent and fraction as a float's, which is too small by 2^112, subnormal ones too. */
SCAN_CLONES static void widen_half(const uint8_t *bytes, uint32_t n, double *x)
{
    for (uint32_t i = 0; i < n; i++) {
        uint16_t v;
        float f;
        memcpy(&v, bytes + i * sizeof v, sizeof v);
        const uint32_t magnitude = (uint32_t)(v & 0x7fffu) << 13;
        const uint32_t sign = (uint32_t)(v & 0x8000u) << 16;
        const uint32_t bits = magnitude | sign;
        memcpy(&f, &bits, sizeof f);
        const double number = (double)f * 0x1p112;
        x[i] = magnitude >= 0x0f800000u ? (double)INFINITY : number;
    }
}

/* 2^e, of a normal double. */
static double power_of_two(int e)
{
    const uint64_t bits = (uint64_t)(e + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The value of a byte of an 8-bit float. */
static double float8_value(dtype d, unsigned code)
{
    const bool wide = d == DTYPE_FLOAT8_E5M2 || d == DTYPE_FLOAT8_E5M2FNUZ;
    const bool fnuz = d == DTYPE_FLOAT8_E4M3FNUZ || d == DTYPE_FLOAT8_E5M2FNUZ;
    const unsigned fraction_bits = wide ? 2 : 3;
    const unsigned magnitude = code & 0x7f;
    const unsigned fraction = magnitude & ((1u << fraction_bits) - 1);
    const int exponent = (int)(magnitude >> fraction_bits);
    const int bias = (wide ? 15 : 7) + (fnuz ? 1 : 0);
    if (d == DTYPE_FLOAT8_E8M0FNU)
        return code == 0xff ? (double)NAN : power_of_two((int)code - 127);
    if (fnuz ? code == 0x80 : wide ? magnitude >= 0x7c : magnitude == 0x7f)
        return (double)NAN;
    const unsigned whole = exponent == 0 ? 0 : 1u << fraction_bits;
    const double value = (double)(fraction + whole) *
                         power_of_two((exponent == 0 ? 1 : exponent) - bias - (int)fraction_bits);
    return code & 0x80 ? -value : value;
}

typedef void (*widen_fn)(const uint8_t *bytes, uint32_t n, double *x);

/* NULL for 8-bit floats and non-numeric dtypes. *parts: numbers per element. */
static widen_fn widen_of(dtype d, unsigned *parts)
{
    *parts = dtype_get(d)->kind == DTYPE_IS_COMPLEX ? 2 : 1;
    switch (d) {
    case DTYPE_BOOL:
    case DTYPE_UINT8:
        return widen_u8;
    case DTYPE_INT8:
        return widen_i8;
    case DTYPE_UINT16:
        return widen_u16;
    case DTYPE_INT16:
        return widen_i16;
    case DTYPE_UINT32:
        return widen_u32;
    case DTYPE_INT32:
        return widen_i32;
    case DTYPE_UINT64:
        return widen_u64;
    case DTYPE_INT64:
        return widen_i64;
    case DTYPE_FLOAT16:
    case DTYPE_COMPLEX32:
        return widen_half;
    case DTYPE_BFLOAT16:
    case DTYPE_BCOMPLEX32:
        return widen_brain;
    case DTYPE_FLOAT32:
    case DTYPE_COMPLEX64:
        return widen_f32;
    case DTYPE_FLOAT64:
    case DTYPE_COMPLEX128:
        return widen_f64;
    default:
        return NULL;
    }
}

static bool is_float8(dtype d)
{
    return dtype_get(d)->kind == DTYPE_IS_FLOAT && dtype_get(d)->itemsize_bytes == 1 &&
           dtype_get(d)->packing == 1;
}

/* ---- sums ---- */

static double sum_lanes(const double *s)
{
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

SCAN_CLONES static double sum_block(const block *b, double *least, double *most)
{
    double s[LANES] = {0}, low[LANES], high[LANES];
    const uint32_t whole = b->n / LANES * LANES;
    for (unsigned k = 0; k < LANES; k++)
        low[k] = high[k] = b->x[0];
    for (uint32_t i = 0; i < whole; i += LANES)
        for (unsigned k = 0; k < LANES; k++) {
            const double x = b->x[i + k];
            s[k] += x;
            low[k] = x < low[k] ? x : low[k];
            high[k] = x > high[k] ? x : high[k];
        }
    for (uint32_t i = whole; i < b->n; i++) {
        const double x = b->x[i];
        s[0] += x;
        low[0] = x < low[0] ? x : low[0];
        high[0] = x > high[0] ? x : high[0];
    }
    *least = low[0];
    *most = high[0];
    for (unsigned k = 1; k < LANES; k++) {
        *least = low[k] < *least ? low[k] : *least;
        *most = high[k] > *most ? high[k] : *most;
    }
    return sum_lanes(s);
}

SCAN_CLONES static double sum_squares(const block *b, double mean)
{
    double s[LANES] = {0};
    const uint32_t whole = b->n / LANES * LANES;
    for (uint32_t i = 0; i < whole; i += LANES)
        for (unsigned k = 0; k < LANES; k++) {
            const double far = b->x[i + k] - mean;
            s[k] += far * far;
        }
    for (uint32_t i = whole; i < b->n; i++)
        s[0] += (b->x[i] - mean) * (b->x[i] - mean);
    return sum_lanes(s);
}

/* By the exponent field of a double: 0 is of zeros and the smallest. */
static uint64_t count_exponents(const block *b, uint64_t *exponents)
{
    uint64_t zeros = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint64_t bits;
        memcpy(&bits, &b->x[i], sizeof bits);
        exponents[bits >> 52 & 0x7ff]++;
        zeros += b->x[i] == 0;
    }
    exponents[0] -= zeros;
    return zeros;
}

static void drop_non_finite(block *b)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->n; i++)
        if (isfinite(b->x[i]))
            b->x[kept++] = b->x[i];
    b->n = kept;
}

static void take_block(block *b, element_stats *m, uint64_t *exponents)
{
    element_stats one = {0};
    double sum = sum_block(b, &one.least, &one.most);
    if (!isfinite(sum)) {
        drop_non_finite(b);
        if (b->n == 0)
            return;
        sum = sum_block(b, &one.least, &one.most);
    }
    one.numbers = b->n;
    one.mean = sum / b->n;
    one.squares = sum_squares(b, one.mean);
    one.zeros = count_exponents(b, exponents);
    element_stats_add(m, &one);
}

void element_stats_add_elements(dtype d, const uint8_t *bytes, uint64_t n, element_stats *m,
                                uint64_t *exponents)
{
    block b;
    unsigned parts;
    double table[256];
    const widen_fn widen = widen_of(d, &parts);
    const size_t size = dtype_get(d)->itemsize_bytes / parts;
    if (widen == NULL && !is_float8(d))
        return;
    for (unsigned code = 0; widen == NULL && code < 256; code++)
        table[code] = float8_value(d, code);
    n *= parts;
    for (uint64_t at = 0; at < n; at += BLOCK) {
        b.n = n - at < BLOCK ? (uint32_t)(n - at) : BLOCK;
        if (widen != NULL)
            widen(bytes + at * size, b.n, b.x);
        for (uint32_t i = 0; widen == NULL && i < b.n; i++)
            b.x[i] = table[bytes[at + i]];
        take_block(&b, m, exponents);
    }
}

void element_stats_add(element_stats *to, const element_stats *from)
{
    if (from->numbers == 0)
        return;
    if (to->numbers == 0) {
        *to = *from;
        return;
    }
    const double a = (double)to->numbers, b = (double)from->numbers;
    const double far = from->mean - to->mean;
    to->mean += far * (b / (a + b));
    to->squares += from->squares + far * far * (a * b / (a + b));
    to->numbers += from->numbers;
    to->zeros += from->zeros;
    to->least = from->least < to->least ? from->least : to->least;
    to->most = from->most > to->most ? from->most : to->most;
}
