/* gpu_cast_body.h: tasks that cast elements; for gpu_body.h alone. Runs of elements have a function for each
 * pair of types. */
#ifndef FSDPCK_KERNELS_GPU_CAST_BODY_H
#define FSDPCK_KERNELS_GPU_CAST_BODY_H

#include "kernels/gpu_access.h"

/* Functions of their own on a device too: all of them inside each other would take minutes to compile,
 * and more registers. */
#ifndef GPU_OWN_FN
#define GPU_OWN_FN static
#endif

/* All threads cast rows of so many elements. */
#define GPU_LONG_NELEMS 2048u

/* One thread's part of a task: elements or bytes of the box. */
typedef struct gpu_part {
    uint32_t begin, end;
    uint32_t thread, nthreads;
} gpu_part;

GPU_FN unsigned gpu_dtype_nbytes(unsigned type)
{
    return type == GPU_FLOAT64                           ? 8
           : type == GPU_FLOAT32                         ? 4
           : type == GPU_FLOAT16 || type == GPU_BFLOAT16 ? 2
                                                         : 1;
}

/* Units of `unit` bytes in the low bits, each reversed. */
GPU_FN uint64_t gpu_swap(uint64_t v, unsigned unit)
{
    if (unit >= 2)
        v = (v & 0x00FF00FF00FF00FFull) << 8 | (v >> 8 & 0x00FF00FF00FF00FFull);
    if (unit >= 4)
        v = (v & 0x0000FFFF0000FFFFull) << 16 | (v >> 16 & 0x0000FFFF0000FFFFull);
    if (unit >= 8)
        v = v << 32 | v >> 32;
    return v;
}

/* ---- single elements ---- */

typedef struct gpu_casted {
    uint64_t bits;
    uint32_t lost;
} gpu_casted;

GPU_OWN_FN gpu_casted gpu_cast_any(unsigned from, unsigned to, uint64_t bits)
{
    gpu_casted c = {0, 0};
    c.bits = gpu_cast(from, to, bits, &c.lost);
    return c;
}

GPU_FN uint32_t gpu_cast_element(const gpu_box *b, const uint8_t *src, uint8_t *dst)
{
    const uint64_t v = gpu_load(src, b->from_nbytes, b->src_log2);
    const gpu_casted c = gpu_cast_any(b->from, b->to, gpu_swap(v, b->swap_nbytes) ^ b->flip[0]);
    gpu_store(dst, c.bits, b->to_nbytes, b->dst_log2);
    return c.lost;
}

/* At any strides. */
GPU_OWN_FN uint32_t gpu_cast_elements(const gpu_box *b, const gpu_dim *dims, const uint8_t *src,
                                      uint8_t *dst, gpu_part part)
{
    const gpu_shape shape = gpu_shape_of(dims, b->ndim);
    uint32_t lost = 0;
    GPU_UNROLL(1)
    for (uint32_t i = part.begin + part.thread; i < part.end; i += part.nthreads) {
        uint32_t src_at, dst_at;
        gpu_element_offsets(&shape, i, &src_at, &dst_at);
        lost += gpu_cast_element(b, src + src_at, dst + dst_at);
    }
    return lost;
}

/* ---- runs ---- */

/* Elements that are cast at once: 16 bytes of the longer type, or 8. */
GPU_FN uint32_t gpu_cast_several(unsigned from_nbytes, unsigned to_nbytes)
{
    const unsigned longer = from_nbytes > to_nbytes ? from_nbytes : to_nbytes;
    return longer == 1 ? 8 : 16 / longer;
}

/* `count` times several elements by `width` threads; lane: number of this thread. src and dst are
 * multiples of their bytes. */
GPU_FN uint32_t gpu_cast_vectors(const uint8_t *__restrict__ src, uint8_t *__restrict__ dst,
                                 uint32_t count, uint32_t lane, uint32_t width, unsigned from,
                                 unsigned to)
{
    const unsigned from_nbytes = gpu_dtype_nbytes(from), to_nbytes = gpu_dtype_nbytes(to);
    const uint32_t several = gpu_cast_several(from_nbytes, to_nbytes);
    uint32_t lost = 0;
    GPU_UNROLL(1)
    for (uint32_t i = lane; i < count; i += width) {
        const gpu_16 in = gpu_load_16(src + i * several * from_nbytes, several * from_nbytes);
        gpu_16 out = {{0, 0, 0, 0}};
        GPU_UNROLL(8)
        for (unsigned k = 0; k < several; k++)
            gpu_put(&out, k, to_nbytes, gpu_cast(from, to, gpu_get(&in, k, from_nbytes), &lost));
        gpu_store_16(dst + i * several * to_nbytes, &out, several * to_nbytes);
    }
    return lost;
}

#define GPU_FROM_EACH(M)            \
    GPU_TO_EACH(M, FLOAT16)         \
    GPU_TO_EACH(M, BFLOAT16)        \
    GPU_TO_EACH(M, FLOAT32)         \
    GPU_TO_EACH(M, FLOAT64)         \
    GPU_TO_EACH(M, FLOAT8_E4M3FN)   \
    GPU_TO_EACH(M, FLOAT8_E5M2)     \
    GPU_TO_EACH(M, FLOAT8_E4M3FNUZ) \
    GPU_TO_EACH(M, FLOAT8_E5M2FNUZ) \
    GPU_TO_EACH(M, FLOAT8_E8M0FNU)
#define GPU_TO_EACH(M, from) \
    M(from, FLOAT16)         \
    M(from, BFLOAT16)        \
    M(from, FLOAT32)         \
    M(from, FLOAT64)         \
    M(from, FLOAT8_E4M3FN)   \
    M(from, FLOAT8_E5M2)     \
    M(from, FLOAT8_E4M3FNUZ) \
    M(from, FLOAT8_E5M2FNUZ) \
    M(from, FLOAT8_E8M0FNU)

#define GPU_CAST_FN(from, to)                                                                    \
    GPU_OWN_FN uint32_t gpu_cast_##from##_to_##to(const uint8_t *src, uint8_t *dst,              \
                                                  uint32_t count, uint32_t lane, uint32_t width) \
    {                                                                                            \
        return GPU_##from == GPU_##to                                                            \
                   ? 0                                                                           \
                   : gpu_cast_vectors(src, dst, count, lane, width, GPU_##from, GPU_##to);       \
    }
GPU_FROM_EACH(GPU_CAST_FN)

GPU_FN uint32_t gpu_cast_vectors_of(unsigned from, unsigned to, const uint8_t *src, uint8_t *dst,
                                    uint32_t count, uint32_t lane, uint32_t width)
{
#define GPU_CAST_CASE(from, to)       \
    case GPU_##from * 16u + GPU_##to: \
        return gpu_cast_##from##_to_##to(src, dst, count, lane, width);
    switch (from * 16u + to) {
        GPU_FROM_EACH(GPU_CAST_CASE)
    default:
        return 0;
    }
#undef GPU_CAST_CASE
}

/* n adjacent elements, by several at once where both sides are aligned. */
GPU_FN uint32_t gpu_cast_run(const gpu_box *b, const uint8_t *src, uint8_t *dst, uint32_t n,
                             uint32_t lane, uint32_t width)
{
    const unsigned from_nbytes = b->from_nbytes, to_nbytes = b->to_nbytes;
    const uint32_t several = gpu_cast_several(from_nbytes, to_nbytes);
    uint32_t head = ((uint32_t)(0 - (uintptr_t)dst) & (several * to_nbytes - 1)) / to_nbytes;
    if (head > n || ((uintptr_t)(src + head * from_nbytes) & (several * from_nbytes - 1)) != 0)
        head = n;
    const uint32_t count = (n - head) / several;
    const uint32_t singles = n - count * several; /* before and after */
    uint32_t lost = 0;
    if (count > 0)
        lost = gpu_cast_vectors_of(b->from, b->to, src + head * from_nbytes, dst + head * to_nbytes,
                                   count, lane, width);
    GPU_UNROLL(1)
    for (uint32_t i = lane; i < singles; i += width) {
        const uint32_t at = i < head ? i : i + count * several;
        lost += gpu_cast_element(b, src + at * from_nbytes, dst + at * to_nbytes);
    }
    return lost;
}

/* Threads for a row: a few elements each. */
GPU_FN uint32_t gpu_cast_width(uint32_t nelems, uint32_t nthreads)
{
    if (nelems >= GPU_LONG_NELEMS)
        return nthreads;
    return nelems > 64 ? 32 : nelems > 32 ? 16 : 8;
}

/* The last dim is a run of elements. */
GPU_OWN_FN uint32_t gpu_cast_rows(const gpu_box *b, const gpu_dim *dims, const uint8_t *src,
                                  uint8_t *dst, gpu_part part)
{
    const gpu_shape shape = gpu_shape_of(dims, b->ndim - 1u);
    const gpu_dim run = dims[b->ndim - 1u];
    const uint32_t width = gpu_cast_width(run.size, part.nthreads);
    const uint32_t step = part.nthreads / width;
    uint32_t lost = 0;
    GPU_UNROLL(1)
    for (uint32_t row = gpu_divide(part.begin, &run) + part.thread / width;
         row * run.size < part.end; row += step) {
        uint32_t src_at, dst_at;
        const uint32_t begin = row * run.size;
        const uint32_t first = begin < part.begin ? part.begin - begin : 0;
        const uint32_t left = part.end - begin;
        gpu_element_offsets(&shape, row, &src_at, &dst_at);
        lost += gpu_cast_run(
            b, src + src_at + first * b->from_nbytes, dst + dst_at + first * b->to_nbytes,
            (left < run.size ? left : run.size) - first, part.thread % width, width);
    }
    return lost;
}

#endif
