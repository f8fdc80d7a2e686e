#include "state/cast_fp8.h"

#include <stddef.h>
#include <string.h>

#define F32_INFINITY 0x7F800000u

const fp8_format *fp8_format_of(dtype d)
{
    static const fp8_format e4m3fn = {3, 7, 0x7F, 0x7E, 0x7F, false};
    static const fp8_format e5m2 = {2, 15, 0x7C, 0x7C, 0x7F, false};
    static const fp8_format e4m3fnuz = {3, 8, 0x80, 0x80, 0x80, true};
    static const fp8_format e5m2fnuz = {2, 16, 0x80, 0x80, 0x80, true};
    switch (d) {
    case DTYPE_FLOAT8_E4M3FN:
        return &e4m3fn;
    case DTYPE_FLOAT8_E5M2:
        return &e5m2;
    case DTYPE_FLOAT8_E4M3FNUZ:
        return &e4m3fnuz;
    case DTYPE_FLOAT8_E5M2FNUZ:
        return &e5m2fnuz;
    default:
        return NULL;
    }
}

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

uint8_t fp8_encode(const fp8_format *f, uint32_t bits, bool *out_of_range)
{
    const uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
    const unsigned drop = 23 - f->mantissa_bits;
    uint32_t a = bits & 0x7FFFFFFFu;
    uint32_t code;
    *out_of_range = false;
    if (a > F32_INFINITY)
        return f->unsigned_zero ? f->nan : (uint8_t)(f->nan | sign);
    if (a < (128 - f->bias) << 23) {
        /* Below the smallest normal: adding a float whose last bit equals the type's smallest step
         * lets the processor round. */
        const uint32_t magic = (127 - f->bias + drop + 1) << 23;
        code = to_bits(from_bits(a) + from_bits(magic)) - magic;
    } else {
        const uint32_t odd = a >> drop & 1;
        a = a - ((127 - f->bias) << 23) + ((1u << (drop - 1)) - 1) + odd;
        code = a >> drop;
    }
    *out_of_range = code >= f->end;
    if (*out_of_range)
        code = f->beyond;
    if (f->unsigned_zero && (code == 0 || *out_of_range))
        return (uint8_t)code;
    return (uint8_t)(code | sign);
}

uint32_t fp8_decode(const fp8_format *f, uint8_t byte)
{
    const uint32_t sign = (uint32_t)(byte & 0x80) << 24;
    const uint32_t code = byte & 0x7F;
    const unsigned shift = 23 - f->mantissa_bits;
    if (f->unsigned_zero && byte == 0x80)
        return F32_INFINITY | 1; /* as in torch */
    if (code >= f->end)
        return sign | F32_INFINITY |
               (f->end == f->nan ? 0x700000u : (code & 3) << 21 | (code > f->end ? 0x400000u : 0));
    if (code >> f->mantissa_bits == 0) {
        const float step = from_bits((128 - f->bias - f->mantissa_bits) << 23);
        return sign | to_bits((float)code * step);
    }
    return sign | ((code << shift) + ((127 - f->bias) << 23));
}

/* One exponent, biased by 127; rounded at the middle of the mantissa, ties to the even exponent. */
uint8_t fp8_e8m0_encode(uint32_t bits)
{
    const uint32_t exponent = bits >> 23 & 0xFF;
    const uint32_t mantissa = bits & 0x7FFFFFu;
    if (exponent == 0xFF)
        return 0xFF;
    return (uint8_t)(exponent + (mantissa > 0x400000u || (mantissa == 0x400000u && exponent > 0)));
}

uint32_t fp8_e8m0_decode(uint8_t byte)
{
    if (byte == 0xFF)
        return 0x7F800001u;
    return byte == 0 ? 0x00400000u : (uint32_t)byte << 23;
}
