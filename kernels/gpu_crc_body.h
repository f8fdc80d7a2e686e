/* gpu_crc_body.h: the raw CRC-64 of device memory, as work of the threads of a launch. It is also C,
 * as gpu_body.h.
 *
 *     gpu_crc_prepare(&c, at, nbytes);                             // on the host
 *     table[i] = gpu_crc_entry(&c, i);                             // each block, all of them
 *     sums[thread] = gpu_crc_words(&c, table, bytes, block, thread);
 *     sums[gpu_crc_pair(level, thread)] = gpu_crc_join(...);       // each level, threads of its number
 *     crc ^= gpu_crc_block(&c, sums[0], block);
 *
 * A block has GPU_CRC_WORDS words, a thread every GPU_THREADS-th of them. Zeros before the first word
 * change nothing: they make all blocks whole.
 */
#ifndef FSDPCK_KERNELS_GPU_CRC_BODY_H
#define FSDPCK_KERNELS_GPU_CRC_BODY_H

#include "kernels/gpu_access.h"
#include "kernels/gpu_crc.h"

#define GPU_CRC_POLYNOMIAL 0xC96C5795D7870F42ull

GPU_FN uint64_t gpu_crc_multiply(uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    GPU_UNROLL(4)
    for (unsigned bit = 64; bit-- > 0;) {
        product ^= b & (0 - (a >> bit & 1));
        b = (b >> 1) ^ (GPU_CRC_POLYNOMIAL & (0 - (b & 1)));
    }
    return product;
}

/* Entry i of 256: four bits, moved up by one word of each thread. */
GPU_FN uint64_t gpu_crc_entry(const gpu_crc *c, uint32_t i)
{
    return gpu_crc_multiply((uint64_t)(i % 16) << 4 * (i / 16), c->by_words[GPU_CRC_LEVELS]);
}

GPU_FN uint64_t gpu_crc_move(const uint64_t *table, uint64_t sum)
{
    uint64_t moved = 0;
    GPU_UNROLL(16)
    for (unsigned i = 0; i < 16; i++)
        moved ^= table[16 * i + (sum >> 4 * i & 15)];
    return moved;
}

/* bytes: at c->at. */
GPU_FN uint64_t gpu_crc_words(const gpu_crc *c, const uint64_t *table, const uint8_t *bytes,
                              uint32_t block, uint32_t thread)
{
    const gpu_u64 *words = (const gpu_u64 *)(const void *)bytes;
    const uint64_t begin = (uint64_t)block * GPU_CRC_WORDS + thread;
    uint64_t sum = 0;
    for (uint64_t at = begin; at < begin + GPU_CRC_WORDS; at += GPU_CRC_THREADS) {
        sum = gpu_crc_move(table, sum);
        if (at < c->zeros)
            continue;
        const uint64_t i = at - c->zeros;
        sum ^= words[i] & (i == 0 ? c->first : UINT64_MAX) &
               (i + 1 == c->count ? c->last : UINT64_MAX);
    }
    return sum;
}

/* Threads of a level: each joins two sums. */
GPU_FN uint32_t gpu_crc_pairs(unsigned level)
{
    return GPU_CRC_THREADS / 2 >> level;
}

GPU_FN uint32_t gpu_crc_pair(unsigned level, uint32_t thread)
{
    return thread << (level + 1);
}

GPU_FN uint64_t gpu_crc_join(const gpu_crc *c, unsigned level, const uint64_t *pair)
{
    return gpu_crc_multiply(pair[0], c->by_words[level]) ^ pair[1u << level];
}

/* The block's part of the whole. */
GPU_FN uint64_t gpu_crc_block(const gpu_crc *c, uint64_t sum, uint32_t block)
{
    const uint32_t after = c->blocks - 1 - block;
    sum = gpu_crc_multiply(sum, c->by_words[0]);
    for (unsigned i = 0; i < GPU_CRC_BLOCK_BITS; i++)
        if (after >> i & 1)
            sum = gpu_crc_multiply(sum, c->by_blocks[i]);
    return sum;
}

#endif
