#include "state/cast.h"

#include <string.h>

#include "state/cast_fp8.h"

/* Elements are processed in blocks of one size, the last padded with zeros: loops of known length
 * become vector code without a scalar tail. */
#define BLOCK        256
#define F32_INFINITY 0x7F800000u
#define F32_ABS      0x7FFFFFFFu

bool cast_supported(dtype from, dtype to)
{
    const dtype both[2] = {from, to};
    for (int i = 0; i < 2; i++)
        if (both[i] != DTYPE_FLOAT64 && both[i] != DTYPE_FLOAT32 && both[i] != DTYPE_FLOAT16 &&
            both[i] != DTYPE_BFLOAT16 && both[i] != DTYPE_FLOAT8_E8M0FNU &&
            fp8_format_of(both[i]) == NULL)
            return false;
    return from != to;
}

/* `yes` if the condition holds, otherwise `no`; without a branch, so that the loop is vectorized.
 */
static inline uint32_t choose(bool condition, uint32_t yes, uint32_t no)
{
    const uint32_t mask = 0u - (uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

static inline float f32_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static void load_bf16(uint32_t *f32, const uint16_t *src)
{
    for (int i = 0; i < BLOCK; i++)
        f32[i] = (uint32_t)src[i] << 16;
}

static void load_f16(uint32_t *f32, const uint16_t *src)
{
    const uint32_t least_normal = 113u << 23;
    for (int i = 0; i < BLOCK; i++) {
        const uint32_t h = src[i];
        const uint32_t a = (h & 0x7FFF) << 13;
        /* Below the smallest normal: scaled by an exact subtraction of floats. */
        const uint32_t small = bits_of(f32_of(a + least_normal) - f32_of(least_normal));
        const uint32_t quiet = choose(a > 0x7C00u << 13, 0x400000u, 0);
        const uint32_t special = (a + (224u << 23)) | quiet;
        const uint32_t finite = choose(a < 0x400u << 13, small, a + (112u << 23));
        f32[i] = choose(a >= 0x7C00u << 13, special, finite) | (h & 0x8000) << 16;
    }
}

static bool any_infinite(const uint32_t *f32)
{
    uint32_t any = 0;
    for (int i = 0; i < BLOCK; i++)
        any |= (uint32_t)((f32[i] & F32_ABS) == F32_INFINITY);
    return any != 0;
}

/* Counts elements that are finite as float64 but not as float32. */
static uint64_t load_f64(uint32_t *f32, const double *src)
{
    float narrow[BLOCK];
    uint64_t lost = 0;
    for (int i = 0; i < BLOCK; i++)
        narrow[i] = (float)src[i];
    memcpy(f32, narrow, sizeof narrow);
    if (!any_infinite(f32))
        return 0;
    for (int i = 0; i < BLOCK; i++) {
        uint64_t bits;
        memcpy(&bits, &src[i], sizeof bits);
        lost += (f32[i] & F32_ABS) == F32_INFINITY && bits << 1 != 0x7FFull << 53;
    }
    return lost;
}

/* Counts elements that are finite in float32 but infinite or NaN in 16 bits, by the mask of
 * exponent bits. */
static uint64_t count_lost(const uint16_t *dst, const uint32_t *f32, uint16_t exponent)
{
    uint64_t lost = 0;
    for (int i = 0; i < BLOCK; i++)
        lost += (f32[i] & F32_ABS) < F32_INFINITY && (dst[i] & exponent) == exponent;
    return lost;
}

static uint64_t store_bf16(uint16_t *dst, const uint32_t *f32, uint16_t nan)
{
    uint32_t special = 0;
    for (int i = 0; i < BLOCK; i++) {
        const uint32_t v = f32[i];
        const uint32_t rounded = (v + 0x7FFF + (v >> 16 & 1)) >> 16;
        const uint32_t r = choose((v & F32_ABS) > F32_INFINITY, nan, rounded);
        special |= (uint32_t)((r & 0x7F80) == 0x7F80);
        dst[i] = (uint16_t)r;
    }
    return special == 0 ? 0 : count_lost(dst, f32, 0x7F80);
}

static uint64_t store_f16(uint16_t *dst, const uint32_t *f32)
{
    const uint32_t half = 126u << 23; /* 0.5: its last bit equals float16's smallest step */
    uint32_t special = 0;
    for (int i = 0; i < BLOCK; i++) {
        const uint32_t v = f32[i];
        const uint32_t a = v & F32_ABS;
        const uint32_t small = bits_of(f32_of(a) + f32_of(half)) - half;
        const uint32_t normal = (a - (112u << 23) + 0xFFF + (a >> 13 & 1)) >> 13;
        const uint32_t finite = choose(a < 113u << 23, small, normal);
        const uint32_t in_range = choose(a >= 143u << 23, 0x7C00, finite);
        const uint32_t r = choose(a > F32_INFINITY, 0x7E00 | (a >> 13 & 0x3FF), in_range);
        special |= (uint32_t)(r >= 0x7C00);
        dst[i] = (uint16_t)(r | (v >> 16 & 0x8000));
    }
    return special == 0 ? 0 : count_lost(dst, f32, 0x7C00);
}

static void store_f64(double *dst, const uint32_t *f32)
{
    float wide[BLOCK];
    memcpy(wide, f32, sizeof wide);
    for (int i = 0; i < BLOCK; i++)
        dst[i] = wide[i];
}

static uint32_t decode_byte(dtype from, uint8_t byte)
{
    const fp8_format *f = fp8_format_of(from);
    return f != NULL ? fp8_decode(f, byte) : fp8_e8m0_decode(byte);
}

static uint64_t store_fp8(uint8_t *dst, dtype to, const uint32_t *f32)
{
    const fp8_format *f = fp8_format_of(to);
    uint64_t lost = 0;
    for (int i = 0; i < BLOCK; i++) {
        bool beyond;
        if (f != NULL) {
            dst[i] = fp8_encode(f, f32[i], &beyond);
        } else {
            dst[i] = fp8_e8m0_encode(f32[i]);
            beyond = dst[i] == 0xFF;
        }
        lost += beyond && (f32[i] & F32_ABS) < F32_INFINITY;
    }
    return lost;
}

/* `decoded`: float32 of every byte, if `from` is an 8-bit type. */
static uint64_t load_block(dtype from, uint32_t *f32, const void *src, const uint32_t *decoded)
{
    const uint8_t *bytes = src;
    switch (from) {
    case DTYPE_FLOAT32:
        memcpy(f32, src, BLOCK * sizeof *f32);
        return 0;
    case DTYPE_FLOAT64:
        return load_f64(f32, src);
    case DTYPE_BFLOAT16:
        load_bf16(f32, src);
        return 0;
    case DTYPE_FLOAT16:
        load_f16(f32, src);
        return 0;
    default:
        for (int i = 0; i < BLOCK; i++)
            f32[i] = decoded[bytes[i]];
        return 0;
    }
}

static uint64_t store_block(dtype to, void *dst, const uint32_t *f32, uint16_t bf16_nan)
{
    switch (to) {
    case DTYPE_FLOAT32:
        memcpy(dst, f32, BLOCK * sizeof *f32);
        return 0;
    case DTYPE_FLOAT64:
        store_f64(dst, f32);
        return 0;
    case DTYPE_BFLOAT16:
        return store_bf16(dst, f32, bf16_nan);
    case DTYPE_FLOAT16:
        return store_f16(dst, f32);
    default:
        return store_fp8(dst, to, f32);
    }
}

uint64_t cast_elements(dtype from, dtype to, void *dst, const void *src, uint64_t n)
{
    const size_t from_size = dtype_get(from)->itemsize_bytes;
    const size_t to_size = dtype_get(to)->itemsize_bytes;
    const bool narrow = from_size < sizeof(float);
    uint64_t in[BLOCK];
    uint64_t out[BLOCK];
    uint32_t f32[BLOCK];
    uint32_t decoded[256];
    uint64_t lost = 0;
    if (!cast_supported(from, to))
        return 0;
    for (unsigned i = 0; from_size == 1 && i < 256; i++)
        decoded[i] = decode_byte(from, (uint8_t)i);
    for (uint64_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? (size_t)(n - at) : BLOCK;
        memcpy(in, (const uint8_t *)src + at * from_size, count * from_size);
        if (count < BLOCK)
            memset((uint8_t *)in + count * from_size, 0, (BLOCK - count) * from_size);
        lost += load_block(from, f32, in, decoded);
        lost += store_block(to, out, f32, narrow ? 0x7FC0 : 0xFFFF);
        memcpy((uint8_t *)dst + at * to_size, out, count * to_size);
    }
    return lost;
}
