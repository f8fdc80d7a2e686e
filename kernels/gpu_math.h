/* gpu_math.h: casts of single elements on a device, bit for bit equal to state/cast.c. It is also
 * C, so that tests need no device: gpu_cuda_kernels.cu defines GPU_FN for the device.
 *
 * NaN never passes through the device's floating-point unit, which replaces it by its own NaN. */
#ifndef FSDPCK_KERNELS_GPU_MATH_H
#define FSDPCK_KERNELS_GPU_MATH_H

#include <string.h>

#include "kernels/gpu.h"

#ifndef GPU_FN
#define GPU_FN static inline
#endif

#define GPU_F32_INFINITY 0x7F800000u
#define GPU_F32_ABS      0x7FFFFFFFu

GPU_FN float gpu_f32_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

GPU_FN uint32_t gpu_bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

GPU_FN uint32_t gpu_f32_from_f16(uint32_t h)
{
    const uint32_t least_normal = 113u << 23;
    const uint32_t sign = (h & 0x8000u) << 16;
    const uint32_t a = (h & 0x7FFFu) << 13;
    if (a >= 0x7C00u << 13)
        return sign | (a + (224u << 23)) | (a > 0x7C00u << 13 ? 0x400000u : 0);
    if (a < 0x400u << 13)
        return sign | gpu_bits_of(gpu_f32_of(a + least_normal) - gpu_f32_of(least_normal));
    return sign | (a + (112u << 23));
}

/* *lost: finite, and infinite as float32. */
GPU_FN uint32_t gpu_f32_from_f64(uint64_t bits, uint32_t *lost)
{
    const uint32_t sign = (uint32_t)(bits >> 32) & 0x80000000u;
    const uint64_t a = bits & 0x7FFFFFFFFFFFFFFFull;
    double d;
    if (a > 0x7FFull << 52)
        return sign | 0x7FC00000u | (uint32_t)(bits >> 29 & 0x3FFFFFu);
    memcpy(&d, &bits, sizeof d);
    const uint32_t f32 = gpu_bits_of((float)d);
    *lost += (f32 & GPU_F32_ABS) == GPU_F32_INFINITY && a != 0x7FFull << 52;
    return f32;
}

/* The 8-bit types: see state/cast_fp8.h. */
typedef struct gpu_fp8 {
    uint32_t mantissa_bits, bias, end, beyond, nan, unsigned_zero;
} gpu_fp8;

GPU_FN gpu_fp8 gpu_fp8_of(unsigned number)
{
    const gpu_fp8 e4m3fn = {3, 7, 0x7F, 0x7E, 0x7F, 0};
    const gpu_fp8 e5m2 = {2, 15, 0x7C, 0x7C, 0x7F, 0};
    const gpu_fp8 e4m3fnuz = {3, 8, 0x80, 0x80, 0x80, 1};
    const gpu_fp8 e5m2fnuz = {2, 16, 0x80, 0x80, 0x80, 1};
    return number == GPU_FLOAT8_E4M3FN     ? e4m3fn
           : number == GPU_FLOAT8_E5M2     ? e5m2
           : number == GPU_FLOAT8_E4M3FNUZ ? e4m3fnuz
                                           : e5m2fnuz;
}

GPU_FN uint32_t gpu_f32_from_fp8(gpu_fp8 f, uint32_t byte)
{
    const uint32_t sign = (byte & 0x80u) << 24;
    const uint32_t code = byte & 0x7Fu;
    if (f.unsigned_zero && byte == 0x80)
        return GPU_F32_INFINITY | 1;
    if (code >= f.end)
        return sign | GPU_F32_INFINITY |
               (f.end == f.nan ? 0x700000u : (code & 3) << 21 | (code > f.end ? 0x400000u : 0));
    if (code >> f.mantissa_bits == 0) {
        const float step = gpu_f32_of((128 - f.bias - f.mantissa_bits) << 23);
        return sign | gpu_bits_of((float)code * step);
    }
    return sign | ((code << (23 - f.mantissa_bits)) + ((127 - f.bias) << 23));
}

GPU_FN uint32_t gpu_fp8_from_f32(gpu_fp8 f, uint32_t bits, uint32_t *lost)
{
    const uint32_t sign = bits >> 24 & 0x80u;
    const uint32_t drop = 23 - f.mantissa_bits;
    uint32_t a = bits & GPU_F32_ABS;
    uint32_t code;
    if (a > GPU_F32_INFINITY)
        return f.unsigned_zero ? f.nan : f.nan | sign;
    if (a < (128 - f.bias) << 23) {
        const uint32_t magic = (127 - f.bias + drop + 1) << 23;
        code = gpu_bits_of(gpu_f32_of(a) + gpu_f32_of(magic)) - magic;
    } else {
        const uint32_t odd = a >> drop & 1;
        code = (a - ((127 - f.bias) << 23) + ((1u << (drop - 1)) - 1) + odd) >> drop;
    }
    const bool beyond = code >= f.end;
    *lost += beyond && a < GPU_F32_INFINITY;
    if (beyond)
        code = f.beyond;
    return f.unsigned_zero && (code == 0 || beyond) ? code : code | sign;
}

GPU_FN uint32_t gpu_f32_from_e8m0(uint32_t byte)
{
    return byte == 0xFF ? 0x7F800001u : byte == 0 ? 0x00400000u : byte << 23;
}

GPU_FN uint32_t gpu_e8m0_from_f32(uint32_t bits, uint32_t *lost)
{
    const uint32_t exponent = bits >> 23 & 0xFF;
    const uint32_t mantissa = bits & 0x7FFFFFu;
    if (exponent == 0xFF)
        return 0xFF;
    const uint32_t code =
        exponent + (mantissa > 0x400000u || (mantissa == 0x400000u && exponent > 0));
    *lost += code == 0xFF;
    return code;
}

GPU_FN uint32_t gpu_f16_from_f32(uint32_t v, uint32_t *lost)
{
    const uint32_t half = 126u << 23; /* 0.5: its last bit equals float16's smallest step */
    const uint32_t sign = v >> 16 & 0x8000u;
    const uint32_t a = v & GPU_F32_ABS;
    uint32_t r;
    if (a > GPU_F32_INFINITY)
        return sign | 0x7E00u | (a >> 13 & 0x3FFu);
    if (a >= 143u << 23)
        r = 0x7C00u;
    else if (a < 113u << 23)
        r = gpu_bits_of(gpu_f32_of(a) + gpu_f32_of(half)) - half;
    else
        r = (a - (112u << 23) + 0xFFFu + (a >> 13 & 1)) >> 13;
    *lost += r == 0x7C00u && a < GPU_F32_INFINITY;
    return sign | r;
}

GPU_FN uint32_t gpu_bf16_from_f32(uint32_t v, uint32_t nan, uint32_t *lost)
{
    const uint32_t a = v & GPU_F32_ABS;
    if (a > GPU_F32_INFINITY)
        return nan;
    const uint32_t r = (v + 0x7FFFu + (v >> 16 & 1)) >> 16;
    *lost += a < GPU_F32_INFINITY && (r & 0x7F80u) == 0x7F80u;
    return r;
}

GPU_FN uint64_t gpu_f64_from_f32(uint32_t v)
{
    const uint64_t sign = (uint64_t)(v & 0x80000000u) << 32;
    uint64_t bits;
    if ((v & GPU_F32_ABS) > GPU_F32_INFINITY)
        return sign | 0x7FF8ull << 48 | (uint64_t)(v & 0x3FFFFFu) << 29;
    const double d = gpu_f32_of(v);
    memcpy(&bits, &d, sizeof bits);
    return bits;
}

GPU_FN uint32_t gpu_f32_from(unsigned from, uint64_t bits, uint32_t *lost)
{
    const uint32_t low = (uint32_t)bits;
    switch (from) {
    case GPU_FLOAT32:
        return low;
    case GPU_BFLOAT16:
        return low << 16;
    case GPU_FLOAT16:
        return gpu_f32_from_f16(low);
    case GPU_FLOAT64:
        return gpu_f32_from_f64(bits, lost);
    case GPU_FLOAT8_E8M0FNU:
        return gpu_f32_from_e8m0(low);
    default:
        return gpu_f32_from_fp8(gpu_fp8_of(from), low);
    }
}

/* Converts the bits of an element from type `from` to `to`; counts finite values that become
 * infinite or NaN. */
GPU_FN uint64_t gpu_cast(unsigned from, unsigned to, uint64_t bits, uint32_t *lost)
{
    const uint32_t v = gpu_f32_from(from, bits, lost);
    switch (to) {
    case GPU_FLOAT32:
        return v;
    case GPU_BFLOAT16:
        return gpu_bf16_from_f32(v, from == GPU_FLOAT32 || from == GPU_FLOAT64 ? 0xFFFFu : 0x7FC0u,
                                 lost);
    case GPU_FLOAT16:
        return gpu_f16_from_f32(v, lost);
    case GPU_FLOAT64:
        return gpu_f64_from_f32(v);
    case GPU_FLOAT8_E8M0FNU:
        return gpu_e8m0_from_f32(v, lost);
    default:
        return gpu_fp8_from_f32(gpu_fp8_of(to), v, lost);
    }
}

#endif
