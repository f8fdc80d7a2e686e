/* The host's part of a CRC. */
#include "kernels/gpu_crc.h"

#include "base/crc.h"

bool gpu_crc_prepare(gpu_crc *c, gpu_address at, uint64_t nbytes)
{
    const uint64_t skip = at % sizeof(uint64_t);
    const uint64_t count = (skip + nbytes + 7) / 8;
    const uint64_t blocks = (count + GPU_CRC_WORDS - 1) / GPU_CRC_WORDS;
    if (blocks >= (uint64_t)1 << GPU_CRC_BLOCK_BITS)
        return false;
    *c = (gpu_crc){.at = at - skip,
                   .count = count,
                   .zeros = blocks * GPU_CRC_WORDS - count,
                   .first = UINT64_MAX << 8 * skip,
                   .last = UINT64_MAX >> 8 * (count * 8 - skip - nbytes),
                   .blocks = (uint32_t)blocks};
    for (unsigned i = 0; i <= GPU_CRC_LEVELS; i++)
        c->by_words[i] = crc64_power((uint64_t)sizeof(uint64_t) << i);
    for (unsigned i = 0; blocks >> i != 0; i++)
        c->by_blocks[i] = crc64_power((uint64_t)sizeof(uint64_t) * GPU_CRC_WORDS << i);
    return true;
}
