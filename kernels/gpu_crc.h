/* gpu_crc.h: the raw CRC-64 (base/crc.h) of device memory, as blocks of a launch compute it
 * (gpu_crc_body.h). For kernels/ and tests only. */
#ifndef FSDPCK_KERNELS_GPU_CRC_H
#define FSDPCK_KERNELS_GPU_CRC_H

#include "kernels/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPU_CRC_THREADS 256u
#define GPU_CRC_WORDS   8192u
#define GPU_CRC_LEVELS  8u /* GPU_CRC_THREADS is 1 << GPU_CRC_LEVELS */
enum { GPU_CRC_BLOCK_BITS = 20 };

/* A word is a polynomial; bit 63 stands for x^0. */
typedef struct gpu_crc {
    gpu_address at;        /* of the first word */
    uint64_t count, zeros; /* words; and before them, so that all blocks are whole */
    uint64_t first, last;  /* bits of the first and the last word that count */
    uint32_t blocks;
    /* x^64 to the powers 1 << i: [GPU_CRC_LEVELS] moves up by one word of each thread. */
    uint64_t by_words[GPU_CRC_LEVELS + 1];
    uint64_t by_blocks[GPU_CRC_BLOCK_BITS]; /* up by 1 << i blocks */
} gpu_crc;

/* nbytes is not 0. False: too many. */
bool gpu_crc_prepare(gpu_crc *c, gpu_address at, uint64_t nbytes);

#ifdef __cplusplus
}
#endif
#endif
