/* gpu_access.h: how threads of a launch find and access elements. It is also C, as gpu_math.h. */
#ifndef FSDPCK_KERNELS_GPU_ACCESS_H
#define FSDPCK_KERNELS_GPU_ACCESS_H

#include "kernels/gpu_math.h"

/* Loops whose iterations are independent. gcc does without. */
#ifdef __CUDACC__
#define GPU_UNROLL(n) _Pragma(GPU_TEXT(unroll n))
#define GPU_TEXT(...) #__VA_ARGS__
#else
#define GPU_UNROLL(n)
#endif

typedef uint16_t __attribute__((may_alias)) gpu_u16;
typedef uint32_t __attribute__((may_alias)) gpu_u32;
typedef uint64_t __attribute__((may_alias)) gpu_u64;
typedef struct __attribute__((aligned(16), may_alias)) gpu_16 {
    uint32_t w[4];
} gpu_16;

/* Little-endian bits of up to 8 bytes at a multiple of 1 << log2. */
GPU_FN uint64_t gpu_load(const uint8_t *p, unsigned nbytes, unsigned log2)
{
    uint64_t v = 0;
    if (nbytes >> log2 <= 1) {
        switch (nbytes) {
        case 1:
            return *p;
        case 2:
            return *(const gpu_u16 *)(const void *)p;
        case 4:
            return *(const gpu_u32 *)(const void *)p;
        default:
            return *(const gpu_u64 *)(const void *)p;
        }
    }
    for (unsigned i = 0; i < nbytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

GPU_FN void gpu_store(uint8_t *p, uint64_t v, unsigned nbytes, unsigned log2)
{
    if (nbytes >> log2 <= 1) {
        switch (nbytes) {
        case 1:
            *p = (uint8_t)v;
            return;
        case 2:
            *(gpu_u16 *)(void *)p = (uint16_t)v;
            return;
        case 4:
            *(gpu_u32 *)(void *)p = (uint32_t)v;
            return;
        default:
            *(gpu_u64 *)(void *)p = v;
            return;
        }
    }
    for (unsigned i = 0; i < nbytes; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* ---- several elements at once: nbytes is 2 to 16, a power of two, and divides p ---- */

GPU_FN gpu_16 gpu_load_16(const uint8_t *p, unsigned nbytes)
{
    gpu_16 v = {{0, 0, 0, 0}};
    if (nbytes == 16)
        return *(const gpu_16 *)(const void *)p;
    const uint64_t low = gpu_load(p, nbytes, 3);
    v.w[0] = (uint32_t)low;
    v.w[1] = (uint32_t)(low >> 32);
    return v;
}

GPU_FN void gpu_store_16(uint8_t *p, const gpu_16 *v, unsigned nbytes)
{
    if (nbytes == 16)
        *(gpu_16 *)(void *)p = *v;
    else
        gpu_store(p, v->w[0] | (uint64_t)v->w[1] << 32, nbytes, 3);
}

/* Element number i, of so many bytes. */
GPU_FN uint64_t gpu_get(const gpu_16 *v, unsigned i, unsigned nbytes)
{
    if (nbytes == 8)
        return v->w[2 * i] | (uint64_t)v->w[2 * i + 1] << 32;
    const uint32_t word = v->w[i * nbytes / 4] >> 8 * (i * nbytes % 4);
    return nbytes == 4 ? word : word & ((1u << 8 * nbytes) - 1);
}

/* Into zeros. */
GPU_FN void gpu_put(gpu_16 *v, unsigned i, unsigned nbytes, uint64_t bits)
{
    v->w[i * nbytes / 4] |= (uint32_t)bits << 8 * (i * nbytes % 4);
    if (nbytes == 8)
        v->w[2 * i + 1] = (uint32_t)(bits >> 32);
}

/* ---- parts of 16 bytes: [low, high), both multiples of 1 << log2 ---- */

/* `at` is of byte 0, a multiple of 1 << log2. Reads only words with at least one needed byte, hence none
 * outside of an allocation. */
GPU_FN gpu_16 gpu_load_part(uintptr_t at, uint32_t low, uint32_t high, unsigned log2)
{
    const uint32_t shift = log2 < 2 ? (uint32_t)(at & 3u) : 0;
    const gpu_u32 *from = (const gpu_u32 *)(at - shift);
    uint32_t words[5] = {0, 0, 0, 0, 0};
    gpu_16 v;
    GPU_UNROLL(5)
    for (uint32_t i = 0; i < (log2 < 2 ? 5u : 4u); i++)
        if (4 * i + 4 > low + shift && 4 * i < high + shift)
            words[i] = from[i];
    GPU_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++)
        v.w[i] = (uint32_t)((words[i] | (uint64_t)words[i + 1] << 32) >> 8 * shift);
    return v;
}

/* Bits from byte number `at` on, up to the end of its word. */
GPU_FN uint32_t gpu_bits_at(const gpu_16 *v, uint32_t at)
{
    const uint32_t low = at & 4u ? v->w[1] : v->w[0];
    const uint32_t high = at & 4u ? v->w[3] : v->w[2];
    return (at & 8u ? high : low) >> 8 * (at & 3u);
}

/* p is a multiple of 16. */
GPU_FN void gpu_store_part(uint8_t *p, const gpu_16 *v, uint32_t low, uint32_t high, unsigned log2)
{
    if (low == 0 && high == 16) {
        *(gpu_16 *)(void *)p = *v;
        return;
    }
    GPU_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++)
        if (low <= 4 * i && 4 * i + 4 <= high)
            *(gpu_u32 *)(void *)(p + 4 * i) = v->w[i];
    if (log2 == 0 && (low & 1u) != 0)
        p[low] = (uint8_t)gpu_bits_at(v, low);
    if (log2 == 0 && (high & 1u) != 0)
        p[high - 1] = (uint8_t)gpu_bits_at(v, high - 1);
    const uint32_t first = (low + 1) & ~1u, end = high & ~1u;
    if (log2 <= 1 && (first & 2u) != 0 && first + 2 <= end)
        *(gpu_u16 *)(void *)(p + first) = (uint16_t)gpu_bits_at(v, first);
    if (log2 <= 1 && (end & 2u) != 0 && end >= first + 2)
        *(gpu_u16 *)(void *)(p + end - 2) = (uint16_t)gpu_bits_at(v, end - 2);
}

/* ---- indices ---- */

/* n / d->size, for n below 2^31. */
GPU_FN uint32_t gpu_divide(uint32_t n, const gpu_dim *d)
{
    return (uint32_t)((uint64_t)n * d->magic >> d->shift);
}

/* The first dims of a box, row-major. The outermost and the innermost are kept in registers. */
typedef struct gpu_shape {
    unsigned ndim;
    const gpu_dim *dims;
    gpu_dim first, last;
} gpu_shape;

GPU_FN gpu_shape gpu_shape_of(const gpu_dim *dims, unsigned ndim)
{
    const gpu_dim none = {0, 0, 0, 0, 0, 0};
    const gpu_shape s = {ndim, dims, ndim > 0 ? dims[0] : none, ndim > 1 ? dims[ndim - 1] : none};
    return s;
}

/* Where element `index` is, from the first one on. */
GPU_FN void gpu_element_offsets(const gpu_shape *s, uint32_t index, uint32_t *src, uint32_t *dst)
{
    *src = *dst = 0;
    if (s->ndim > 1) {
        uint32_t rest = gpu_divide(index, &s->last);
        uint32_t at = index - rest * s->last.size;
        *src = at * s->last.src;
        *dst = at * s->last.dst;
        GPU_UNROLL(1)
        for (unsigned d = s->ndim - 2; d > 0; d--) {
            const gpu_dim dim = s->dims[d];
            index = rest;
            rest = gpu_divide(index, &dim);
            at = index - rest * dim.size;
            *src += at * dim.src;
            *dst += at * dim.dst;
        }
        index = rest;
    }
    *src += index * s->first.src;
    *dst += index * s->first.dst;
}

#endif
