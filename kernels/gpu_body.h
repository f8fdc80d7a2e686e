/* gpu_body.h: the work of each thread of a launch, as functions of its numbers. It is also C: a
 * launch is then two loops, and tests run the device's code without a device (see gpu_math.h).
 *
 *     while (search.count > 1)                                      // once a block
 *         gpu_search_narrow(&search, number of threads with gpu_search_compare(...), nthreads);
 *     lost = gpu_run_task(boxes + search.first, dims, src, dst, task, thread, nthreads);
 *
 * A block does one task of a box. Each row is copied by 32 threads, or by the whole block if it is
 * long: 16 bytes a thread, destination aligned, sources at any offset through words of 4 bytes.
 * Short runs are copied unit by unit, with the widest unit that every stride and offset allows, or, where
 * that is narrow, line by line: 16 bytes of the destination, and fewer at both ends of a run.
 * Casts of long rows are done in the same way as rows, 16 bytes of the longer type at once; those of short
 * ones, and other changes, element by element. Neighbors in the destination are neighbors in a block, so
 * that stores fill lines.
 */
#ifndef FSDPCK_KERNELS_GPU_BODY_H
#define FSDPCK_KERNELS_GPU_BODY_H

#include "kernels/gpu_cast_body.h"

/* Threads of a launch. nthreads may be any multiple of 32. */
#define GPU_THREADS 256u
/* A task has this number of bytes of rows, or of units or elements. */
#define GPU_TASK_NBYTES ((uint64_t)64 << 10)
#define GPU_TASK_NELEMS ((uint64_t)4 << 10)
/* Rows shorter than GPU_ROW_NBYTES, which 32 threads copy in one step, are copied by units or lines, and
 * shorter than GPU_ROW_NELEMS cast one by one; all threads copy rows of GPU_LONG_NBYTES and more. */
#define GPU_ROW_NBYTES  512u
#define GPU_ROW_NELEMS  16u
#define GPU_LONG_NBYTES 8192u

/* The search for the last box that begins at or before a task: in each step all threads of a block
 * compare at once. */
typedef struct gpu_search {
    uint32_t first, count; /* boxes among which it is */
} gpu_search;

GPU_FN uint32_t gpu_search_step(const gpu_search *s, uint32_t nthreads)
{
    return (s->count + nthreads - 1) / nthreads;
}

/* Whether the box is not before that of this thread. */
GPU_FN bool gpu_search_compare(const gpu_search *s, const gpu_box *boxes, uint32_t task,
                               uint32_t thread, uint32_t nthreads)
{
    const uint32_t at = thread * gpu_search_step(s, nthreads);
    return at < s->count && boxes[s->first + at].first_task <= task;
}

/* number: of the threads that find so. */
GPU_FN void gpu_search_narrow(gpu_search *s, uint32_t number, uint32_t nthreads)
{
    const uint32_t step = gpu_search_step(s, nthreads);
    const uint32_t skip = (number - 1) * step;
    s->first += skip;
    s->count = s->count - skip < step ? s->count - skip : step;
}

/* Copies n bytes with `width` threads; this is thread number `lane`. */
GPU_FN void gpu_copy_run(uint8_t *__restrict__ dst, const uint8_t *__restrict__ src, uint32_t n,
                         uint32_t lane, uint32_t width)
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
        GPU_UNROLL(4)
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

/* The last dim is a run of bytes. */
GPU_OWN_FN void gpu_copy_rows(const gpu_box *b, const gpu_dim *dims, const uint8_t *src,
                              uint8_t *dst, gpu_part part)
{
    const gpu_shape shape = gpu_shape_of(dims, b->ndim - 1u);
    const gpu_dim run = dims[b->ndim - 1u];
    const uint32_t width = run.size >= GPU_LONG_NBYTES ? part.nthreads : 32;
    const uint32_t step = part.nthreads / width;
    for (uint32_t row = gpu_divide(part.begin, &run) + part.thread / width;
         row * run.size < part.end; row += step) {
        uint32_t from, to;
        const uint32_t begin = row * run.size;
        const uint32_t first = begin < part.begin ? part.begin - begin : 0;
        const uint32_t left = part.end - begin;
        gpu_element_offsets(&shape, row, &from, &to);
        gpu_copy_run(dst + to + first, src + from + first,
                     (left < run.size ? left : run.size) - first, part.thread % width, width);
    }
}

GPU_FN void gpu_copy_unit(uint8_t *dst, const uint8_t *src, unsigned log2)
{
    if (log2 == 4)
        *(gpu_16 *)(void *)dst = *(const gpu_16 *)(const void *)src;
    else
        gpu_store(dst, gpu_load(src, 1u << log2, log2), 1u << log2, log2);
}

GPU_FN void gpu_copy_units(const gpu_box *b, const gpu_dim *dims, const uint8_t *__restrict__ src,
                           uint8_t *__restrict__ dst, gpu_part part, unsigned log2)
{
    const gpu_shape shape = gpu_shape_of(dims, b->ndim);
    GPU_UNROLL(1)
    for (uint32_t i = part.begin + part.thread; i < part.end; i += part.nthreads) {
        uint32_t from, to;
        gpu_element_offsets(&shape, i, &from, &to);
        gpu_copy_unit(dst + to, src + from, log2);
    }
}

GPU_OWN_FN void gpu_copy_any_units(const gpu_box *b, const gpu_dim *dims, const uint8_t *src,
                                   uint8_t *dst, gpu_part part)
{
    switch (b->dst_log2) {
    case 0:
        gpu_copy_units(b, dims, src, dst, part, 0);
        break;
    case 1:
        gpu_copy_units(b, dims, src, dst, part, 1);
        break;
    case 2:
        gpu_copy_units(b, dims, src, dst, part, 2);
        break;
    case 3:
        gpu_copy_units(b, dims, src, dst, part, 3);
        break;
    default:
        gpu_copy_units(b, dims, src, dst, part, 4);
    }
}

/* The last dim is a short run of bytes, and each unit is a line that it may touch. */
GPU_FN void gpu_copy_lines(const gpu_box *b, const gpu_dim *dims, const uint8_t *src, uint8_t *dst,
                           gpu_part part, unsigned log2)
{
    const gpu_shape shape = gpu_shape_of(dims, b->ndim - 1u);
    const gpu_dim run = dims[b->ndim - 1u];
    GPU_UNROLL(1)
    for (uint32_t i = part.begin + part.thread; i < part.end; i += part.nthreads) {
        uint32_t from, to;
        const uint32_t row = gpu_divide(i, &run);
        gpu_element_offsets(&shape, row, &from, &to);
        const uint32_t line = 16 * (i - row * run.lines);
        const uint32_t before = (uint32_t)(uintptr_t)(dst + to) & 15u;
        const uint32_t low = line == 0 ? before : 0;
        const uint32_t end = before + run.size; /* from the first line's begin on */
        const uint32_t high = end < line + 16 ? end - line : 16;
        if (line >= end)
            continue;
        const gpu_16 v = gpu_load_part((uintptr_t)(src + from) - before + line, low, high, log2);
        gpu_store_part(dst + to - before + line, &v, low, high, log2);
    }
}

GPU_OWN_FN void gpu_copy_any_lines(const gpu_box *b, const gpu_dim *dims, const uint8_t *src,
                                   uint8_t *dst, gpu_part part)
{
    switch (b->dst_log2) {
    case 0:
        gpu_copy_lines(b, dims, src, dst, part, 0);
        break;
    case 1:
        gpu_copy_lines(b, dims, src, dst, part, 1);
        break;
    default:
        gpu_copy_lines(b, dims, src, dst, part, 2);
    }
}

/* Elements of 1 to 16 bytes; those of 16 are two halves. */
GPU_OWN_FN void gpu_change_elements(const gpu_box *b, const gpu_dim *dims, const uint8_t *src,
                                    uint8_t *dst, gpu_part part)
{
    const gpu_shape shape = gpu_shape_of(dims, b->ndim);
    const unsigned half = b->from_nbytes > 8 ? 8 : b->from_nbytes;
    for (uint32_t i = part.begin + part.thread; i < part.end; i += part.nthreads) {
        uint32_t from, to;
        gpu_element_offsets(&shape, i, &from, &to);
        for (unsigned at = 0; at < b->from_nbytes; at += half) {
            uint64_t v = gpu_swap(gpu_load(src + from + at, half, b->src_log2), b->swap_nbytes);
            v ^= b->flip[at / 8];
            gpu_store(dst + to + at, b->negate ? 0 - v : v, half, b->dst_log2);
        }
    }
}

/* The work of one thread in a task; returns the number of its elements that were lost. */
GPU_FN uint32_t gpu_run_task(const gpu_box *b, const gpu_dim *all_dims, const uint8_t *src,
                             uint8_t *dst, uint32_t task, uint32_t thread, uint32_t nthreads)
{
    const gpu_dim *dims = all_dims + b->dims_at;
    const uint64_t each = b->way == GPU_WAY_ROWS ? GPU_TASK_NBYTES : GPU_TASK_NELEMS;
    const uint64_t begin = (task - b->first_task) * each;
    const uint64_t end = begin + each < b->nelems ? begin + each : b->nelems;
    const gpu_part part = {(uint32_t)begin, (uint32_t)end, thread, nthreads};
    src += b->src;
    dst += b->dst;
    switch (b->way) {
    case GPU_WAY_ROWS:
        gpu_copy_rows(b, dims, src, dst, part);
        return 0;
    case GPU_WAY_UNITS:
        gpu_copy_any_units(b, dims, src, dst, part);
        return 0;
    case GPU_WAY_LINES:
        gpu_copy_any_lines(b, dims, src, dst, part);
        return 0;
    case GPU_WAY_CHANGE:
        gpu_change_elements(b, dims, src, dst, part);
        return 0;
    case GPU_WAY_CAST:
        return gpu_cast_elements(b, dims, src, dst, part);
    default:
        return gpu_cast_rows(b, dims, src, dst, part);
    }
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
