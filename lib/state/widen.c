#include "state/widen.h"

#include <math.h>
#include <string.h>

/* SCAN_CLONES comes from the build: see check/scan_elements.c. */

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

/* NULL for 8-bit floats and non-numeric dtypes. */
static widen_fn widen_of(dtype d)
{
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

bool widener_init(widener *w, dtype d)
{
    w->type = d;
    w->parts = dtype_get(d)->kind == DTYPE_IS_COMPLEX ? 2 : 1;
    w->number_nbytes = dtype_get(d)->itemsize_bytes / w->parts;
    w->fn = widen_of(d);
    if (w->fn != NULL)
        return true;
    if (!is_float8(d))
        return false;
    for (unsigned code = 0; code < 256; code++)
        w->table[code] = float8_value(d, code);
    return true;
}

void widen(const widener *w, const uint8_t *bytes, uint32_t n, double *numbers)
{
    if (w->fn != NULL) {
        w->fn(bytes, n, numbers);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        numbers[i] = w->table[bytes[i]];
}
