/* crc.h: CRC-32 (zip) and CRC-64/XZ (tensor digests), with combination.
 *
 * Both use ISA-L at memory speed. The CRC of a whole is combined from the CRCs of its parts in
 * order, so that any worker may compute a part at any time:
 *
 *     crc32_join(crc_a, crc_b, nbytes_b)  ==  crc32_update(crc_a, b, nbytes_b)
 */
#ifndef FSDPCK_BASE_CRC_H
#define FSDPCK_BASE_CRC_H

#include <stdint.h>

/* Start with 0. */
uint32_t crc32_update(uint32_t crc, const void *bytes, uint64_t nbytes);
uint64_t crc64_update(uint64_t crc, const void *bytes, uint64_t nbytes);
/* Of a number as 8 bytes, little-endian. */
uint64_t crc64_add_u64(uint64_t crc, uint64_t number);

/* CRC of a followed by b, from crc(a), crc(b) and the length of b; O(log nbytes_b). */
uint32_t crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t nbytes_b);
uint64_t crc64_join(uint64_t crc_a, uint64_t crc_b, uint64_t nbytes_b);

/* CRC of nbytes zeros. The CRC of a text that is zero except for some parts is the xor of
 * crc_zeros(its length) and, per part, of crc(bytes) ^ crc_zeros(their number), moved with
 * crc_join(.., 0, number of bytes after it). Parts may therefore come in any order. */
uint32_t crc32_zeros(uint64_t nbytes);
uint64_t crc64_zeros(uint64_t nbytes);

/* ---- CRC-64 without its inversions ----
 *
 * Zeros have the raw CRC 0. Hence a part of a text of zeros has the raw CRC of the part alone,
 * shifted by the bytes after it. The CRC of any text is the xor of the shifted raw CRCs of its
 * parts and of crc64_zeros(its length). */
uint64_t crc64_raw(uint64_t raw, const void *bytes, uint64_t nbytes); /* start with 0 */
uint64_t crc64_shift(uint64_t raw, uint64_t nbytes);                  /* up to 15 x 60 ns */

/* For many shifts by one distance: one multiplication each with crc64_power(nbytes), or, for very
 * many, tables made once (1 us, 16 KiB). */
uint64_t crc64_power(uint64_t nbytes);
uint64_t crc64_multiply(uint64_t raw, uint64_t power);

typedef struct crc64_shifter {
    uint64_t rows[8][256];
} crc64_shifter;

void crc64_shifter_init(crc64_shifter *m, uint64_t nbytes);

/* Written out: compilers leave a loop of eight as it is. */
static inline uint64_t crc64_shift_by(const crc64_shifter *m, uint64_t raw)
{
    const uint64_t low = m->rows[0][raw & 0xFF] ^ m->rows[1][raw >> 8 & 0xFF] ^
                         m->rows[2][raw >> 16 & 0xFF] ^ m->rows[3][raw >> 24 & 0xFF];
    const uint64_t high = m->rows[4][raw >> 32 & 0xFF] ^ m->rows[5][raw >> 40 & 0xFF] ^
                          m->rows[6][raw >> 48 & 0xFF] ^ m->rows[7][raw >> 56];
    return low ^ high;
}

#endif
