/* gpu_math.h: casts of single elements on a device, bit for bit equal to state/cast.c. It is also
 * C, so that tests need no device: gpu_cuda_kernels.cu defines GPU_FN for the device.
 *
 * Results for NaN never come from the device's floating-point unit, which has one NaN of its own. Both
 * sides of a choice are computed, where that is shorter than a branch. */
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

/* A number times a power of two. This is exact, also of subnormal numbers. */
GPU_FN uint32_t gpu_f32_scaled(uint32_t bits, uint32_t log2)
{
    return gpu_bits_of(gpu_f32_of(bits) * gpu_f32_of((127 + log2) << 23));
}

GPU_FN uint32_t gpu_f32_from_f16(uint32_t h)
{
    const uint32_t sign = (h & 0x8000u) << 16;
    const uint32_t a = (h & 0x7FFFu) << 13;
    const uint32_t special = (a + (224u << 23)) | (a > 0x7C00u << 13 ? 0x400000u : 0);
    return sign | (a >= 0x7C00u << 13 ? special : gpu_f32_scaled(a, 112));
}

/* *lost: finite, and infinite as float32. */
GPU_FN uint32_t gpu_f32_from_f64(uint64_t bits, uint32_t *lost)
{
    const uint32_t high = (uint32_t)(bits >> 32);
    const uint32_t nan = (high & 0x80000000u) | 0x7FC00000u | (uint32_t)(bits >> 29 & 0x3FFFFFu);
    const bool is_nan = (bits & 0x7FFFFFFFFFFFFFFFull) > 0x7FFull << 52;
    double d;
    memcpy(&d, &bits, sizeof d);
    const uint32_t f32 = gpu_bits_of((float)d);
    *lost += (f32 & GPU_F32_ABS) == GPU_F32_INFINITY && (high & 0x7FF00000u) != 0x7FF00000u;
    return is_nan ? nan : f32;
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
    const uint32_t value = sign | gpu_f32_scaled(code << (23 - f.mantissa_bits), 127 - f.bias);
    if (f.unsigned_zero)
        return byte == 0x80 ? GPU_F32_INFINITY | 1 : value;
    const uint32_t special =
        f.end == f.nan ? 0x700000u : (code & 3) << 21 | (code > f.end ? 0x400000u : 0);
    return code >= f.end ? sign | GPU_F32_INFINITY | special : value;
}

GPU_FN uint32_t gpu_fp8_from_f32(gpu_fp8 f, uint32_t bits, uint32_t *lost)
{
    const uint32_t sign = bits >> 24 & 0x80u;
    const uint32_t drop = 23 - f.mantissa_bits;
    const uint32_t a = bits & GPU_F32_ABS;
    const uint32_t magic = (127 - f.bias + drop + 1) << 23;
    const uint32_t small = gpu_bits_of(gpu_f32_of(a) + gpu_f32_of(magic)) - magic;
    const uint32_t large =
        (a - ((127 - f.bias) << 23) + ((1u << (drop - 1)) - 1) + (a >> drop & 1)) >> drop;
    const uint32_t code = a < (128 - f.bias) << 23 ? small : large;
    const bool beyond = code >= f.end; /* NaN too */
    const uint32_t special = a > GPU_F32_INFINITY ? f.nan : f.beyond;
    *lost += beyond && a < GPU_F32_INFINITY;
    return (beyond ? special : code) | (f.unsigned_zero && (code == 0 || beyond) ? 0 : sign);
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
    const uint32_t small = gpu_bits_of(gpu_f32_of(a) + gpu_f32_of(half)) - half;
    const uint32_t large = (a - (112u << 23) + 0xFFFu + (a >> 13 & 1)) >> 13;
    const uint32_t r = a < 113u << 23 ? small : large;
    const bool beyond = r >= 0x7C00u; /* NaN too */
    const uint32_t special = a > GPU_F32_INFINITY ? 0x7E00u | (a >> 13 & 0x3FFu) : 0x7C00u;
    *lost += beyond && a < GPU_F32_INFINITY;
    return sign | (beyond ? special : r);
}

GPU_FN uint32_t gpu_bf16_from_f32(uint32_t v, uint32_t nan, uint32_t *lost)
{
    const uint32_t a = v & GPU_F32_ABS;
    const uint32_t r = (v + 0x7FFFu + (v >> 16 & 1)) >> 16;
    *lost += a - 0x7F7F8000u < 0x8000u; /* finite, and rounded to infinity */
    return a > GPU_F32_INFINITY ? nan : r;
}

GPU_FN uint64_t gpu_f64_from_f32(uint32_t v)
{
    const uint64_t nan =
        (uint64_t)((v & 0x80000000u) | 0x7FF80000u) << 32 | (uint64_t)(v & 0x3FFFFFu) << 29;
    const double d = gpu_f32_of(v);
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return (v & GPU_F32_ABS) > GPU_F32_INFINITY ? nan : bits;
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

/* Types whose values are all bfloat16's. */
GPU_FN bool gpu_is_in_bf16(unsigned type)
{
    return type >= GPU_FLOAT8_E4M3FN && type <= GPU_FLOAT8_E8M0FNU;
}

/* Converts the bits of an element from type `from` to `to`; counts finite values that become
 * infinite or NaN. */
GPU_FN uint64_t gpu_cast(unsigned from, unsigned to, uint64_t bits, uint32_t *lost)
{
    const uint32_t v = gpu_f32_from(from, bits, lost);
    const uint32_t bf16_nan = from == GPU_FLOAT32 || from == GPU_FLOAT64 ? 0xFFFFu : 0x7FC0u;
    switch (to) {
    case GPU_FLOAT32:
        return v;
    case GPU_BFLOAT16:
        if (gpu_is_in_bf16(from))
            return (v & GPU_F32_ABS) > GPU_F32_INFINITY ? bf16_nan : v >> 16;
        return gpu_bf16_from_f32(v, bf16_nan, lost);
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
