/* gpu_body.h: the work of each thread of a launch, as functions of its numbers. It is also C: a
 * launch is then two loops, and tests run the device's code without a device (see gpu_math.h).
 *
 *     box = gpu_find_box(boxes, count, task);                       // once a block
 *     lost = gpu_run_task(boxes + box, dims, src, dst, task, thread, nthreads);
 *
 * A block does one task of a box. Each row is copied by 32 threads, or by the whole block if it is
 * long: 16 bytes a thread, destination aligned, sources at any offset through words of 4 bytes.
 * Short runs are copied unit by unit, with the widest unit that every stride and offset allows.
 * Converted elements are processed one by one; neighbors in the destination are neighbors in a
 * block, so that stores fill lines.
 */
#ifndef FSDPCK_KERNELS_GPU_BODY_H
#define FSDPCK_KERNELS_GPU_BODY_H

#include "kernels/gpu_math.h"

/* Threads of a launch. nthreads may be any multiple of 32. */
#define GPU_THREADS 256u
/* A task has this number of bytes of rows, or of units or elements. */
#define GPU_TASK_NBYTES ((uint64_t)64 << 10)
#define GPU_TASK_NELEMS ((uint64_t)4 << 10)
/* Rows shorter than GPU_ROW_NBYTES are copied unit by unit; all threads copy rows of
 * GPU_LONG_NBYTES and more. */
#define GPU_ROW_NBYTES  128u
#define GPU_LONG_NBYTES 8192u

typedef uint16_t __attribute__((may_alias)) gpu_u16;
typedef uint32_t __attribute__((may_alias)) gpu_u32;
typedef uint64_t __attribute__((may_alias)) gpu_u64;
typedef struct __attribute__((aligned(16), may_alias)) gpu_16 {
    uint32_t w[4];
} gpu_16;

/* The last box that begins at or before the task. */
GPU_FN uint32_t gpu_find_box(const gpu_box *boxes, uint32_t count, uint32_t task)
{
    uint32_t low = 0;
    uint32_t high = count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (boxes[middle].first_task <= task)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Source and destination offset of element `index` of a box, row-major over its first ndim dims. */
GPU_FN void gpu_element_offsets(const gpu_box *b, const uint64_t *dims, unsigned ndim,
                                uint32_t index, uint64_t *src, uint64_t *dst)
{
    const unsigned stride = b->ndim;
    *src = b->src;
    *dst = b->dst;
    for (unsigned d = ndim; d-- > 0;) {
        const uint32_t size = (uint32_t)dims[d];
        const uint32_t at = d == 0 ? index : index % size;
        index /= size;
        *src += at * dims[stride + d];
        *dst += at * dims[2 * stride + d];
    }
}

/* Copies n bytes with `width` threads; this is thread number `lane`. */
GPU_FN void gpu_copy_run(uint8_t *dst, const uint8_t *src, uint32_t n, uint32_t lane,
                         uint32_t width)
{
    const uint32_t to_line = (uint32_t)(0 - (uintptr_t)dst) & 15u;
    const uint32_t head = to_line < n ? to_line : n;
    const uint32_t lines = (n - head) / 16;
    const uint32_t tail = head + lines * 16;
    for (uint32_t i = lane; i < head; i += width)
        dst[i] = src[i];
    gpu_16 *to = (gpu_16 *)(void *)(dst + head);
    const uint32_t shift = (uint32_t)((uintptr_t)(src + head) & 3u);
    if (((uintptr_t)(src + head) & 15u) == 0) {
        const gpu_16 *from = (const gpu_16 *)(const void *)(src + head);
        for (uint32_t i = lane; i < lines; i += width)
            to[i] = from[i];
    } else if (shift == 0) {
        const gpu_u32 *from = (const gpu_u32 *)(const void *)(src + head);
        for (uint32_t i = lane; i < lines; i += width) {
            const gpu_16 v = {{from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]}};
            to[i] = v;
        }
    } else {
        /* Reads only words with at least one needed byte, hence none after the end of an
         * allocation. */
        const gpu_u32 *from = (const gpu_u32 *)(const void *)(src + head - shift);
        const uint32_t down = 8 * shift;
        const uint32_t up = 32 - down;
        for (uint32_t i = lane; i < lines; i += width) {
            const uint32_t a = from[4 * i], b = from[4 * i + 1], c = from[4 * i + 2];
            const uint32_t d = from[4 * i + 3], e = from[4 * i + 4];
            const gpu_16 v = {{a >> down | b << up, b >> down | c << up, c >> down | d << up,
                               d >> down | e << up}};
            to[i] = v;
        }
    }
    for (uint32_t i = tail + lane; i < n; i += width)
        dst[i] = src[i];
}

/* The last dim is a row, of bytes; tasks are ranges of all rows' bytes. */
GPU_FN void gpu_copy_rows(const gpu_box *b, const uint64_t *dims, const uint8_t *src, uint8_t *dst,
                          uint64_t begin, uint64_t end, uint32_t thread, uint32_t nthreads)
{
    const unsigned last = b->ndim - 1u;
    const uint64_t run = dims[last];
    const uint32_t width = run >= GPU_LONG_NBYTES ? nthreads : 32;
    const uint32_t lane = thread % width;
    const uint64_t step = nthreads / width;
    for (uint64_t row = begin / run + thread / width; row * run < end; row += step) {
        uint64_t from, to;
        const uint64_t first = row * run < begin ? begin - row * run : 0;
        const uint64_t stop = (row + 1) * run > end ? end - row * run : run;
        gpu_element_offsets(b, dims, last, (uint32_t)row, &from, &to);
        gpu_copy_run(dst + to + first, src + from + first, (uint32_t)(stop - first), lane, width);
    }
}

GPU_FN void gpu_copy_unit(uint8_t *dst, const uint8_t *src, unsigned log2)
{
    switch (log2) {
    case 0:
        *dst = *src;
        break;
    case 1:
        *(gpu_u16 *)(void *)dst = *(const gpu_u16 *)(const void *)src;
        break;
    case 2:
        *(gpu_u32 *)(void *)dst = *(const gpu_u32 *)(const void *)src;
        break;
    case 3:
        *(gpu_u64 *)(void *)dst = *(const gpu_u64 *)(const void *)src;
        break;
    default:
        *(gpu_16 *)(void *)dst = *(const gpu_16 *)(const void *)src;
    }
}

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

GPU_FN uint32_t gpu_convert_element(const gpu_box *b, uint8_t *dst, const uint8_t *src)
{
    const unsigned half = b->from_nbytes > 8 ? 8 : b->from_nbytes;
    uint32_t lost = 0;
    uint64_t v = gpu_swap(gpu_load(src, half, b->src_log2), b->swap_nbytes) ^ b->flip[0];
    if (b->negate)
        v = 0 - v;
    if (b->from != b->to)
        v = gpu_cast(b->from, b->to, v, &lost);
    gpu_store(dst, v, b->to_nbytes > 8 ? 8 : b->to_nbytes, b->dst_log2);
    if (b->from_nbytes > 8) {
        v = gpu_swap(gpu_load(src + 8, 8, b->src_log2), b->swap_nbytes) ^ b->flip[1];
        gpu_store(dst + 8, v, 8, b->dst_log2);
    }
    return lost;
}

/* The work of one thread in a task; returns the number of its elements that were lost. */
GPU_FN uint32_t gpu_run_task(const gpu_box *b, const uint64_t *all_dims, const uint8_t *src,
                             uint8_t *dst, uint32_t task, uint32_t thread, uint32_t nthreads)
{
    const uint64_t *dims = all_dims + b->dims_at;
    const uint64_t number = task - b->first_task;
    uint32_t lost = 0;
    if (b->way == GPU_WAY_ROWS) {
        const uint64_t end = (number + 1) * GPU_TASK_NBYTES;
        gpu_copy_rows(b, dims, src, dst, number * GPU_TASK_NBYTES,
                      end < b->nelems ? end : b->nelems, thread, nthreads);
        return 0;
    }
    const uint64_t end = (number + 1) * GPU_TASK_NELEMS;
    const uint32_t stop = (uint32_t)(end < b->nelems ? end : b->nelems);
    for (uint32_t i = (uint32_t)(number * GPU_TASK_NELEMS) + thread; i < stop; i += nthreads) {
        uint64_t from, to;
        gpu_element_offsets(b, dims, b->ndim, i, &from, &to);
        if (b->way == GPU_WAY_UNITS)
            gpu_copy_unit(dst + to, src + from, b->dst_log2);
        else
            lost += gpu_convert_element(b, dst + to, src + from);
    }
    return lost;
}

/* Word number i in gpu_sum. A bijection of the word, so that no change of one word is lost; the shift
 * before the product brings the highest bits into it. */
GPU_FN uint64_t gpu_sum_word(uint64_t word, uint64_t i)
{
    word ^= i * 0x9E3779B97F4A7C15ull;
    word = (word ^ word >> 31) * 0xBF58476D1CE4E5B9ull;
    return word ^ word >> 32;
}

/* Part of gpu_sum: every nwords-th word from `first` on; `at` is a multiple of 8. */
GPU_FN uint64_t gpu_sum_words(const uint8_t *at, uint64_t nbytes, uint64_t first, uint64_t step)
{
    const gpu_u64 *words = (const gpu_u64 *)(const void *)at;
    const uint64_t whole = nbytes / 8;
    uint64_t sum = first == 0 && whole > 0 ? words[0] : 0; /* word 0 stays as it is */
    for (uint64_t i = first == 0 ? step : first; i < whole; i += step)
        sum += gpu_sum_word(words[i], i);
    if (first == 0 && nbytes % 8 != 0) {
        uint64_t last = 0;
        for (uint64_t i = whole * 8; i < nbytes; i++)
            last |= (uint64_t)at[i] << 8 * (i % 8);
        sum += gpu_sum_word(last, whole);
    }
    return sum;
}

#endif
