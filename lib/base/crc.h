/* crc.h: CRC-32 (zip) and CRC-64/XZ (tensor digests), with combination.
 *
 * Both run through ISA-L at memory speed. A CRC of a whole is made from the CRCs of its parts in
 * order, so that parts may be summed by any worker at any time:
 *
 *     crc32_join(crc_a, crc_b, nbytes_b)  ==  crc32_update(crc_a, b, nbytes_b)
 */
#ifndef FSDPCK_BASE_CRC_H
#define FSDPCK_BASE_CRC_H

#include <stdint.h>

/* Start with 0. */
uint32_t crc32_update(uint32_t crc, const void *bytes, uint64_t nbytes);
uint64_t crc64_update(uint64_t crc, const void *bytes, uint64_t nbytes);

/* CRC of a followed by b, from crc(a), crc(b) and the length of b; O(log nbytes_b). */
uint32_t crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t nbytes_b);
uint64_t crc64_join(uint64_t crc_a, uint64_t crc_b, uint64_t nbytes_b);

/* CRC of so many zero bytes. What some bytes add to the CRC of a longer text that is zeros elsewhere
 * is crc(bytes) ^ crc_zeros(their number), moved up by crc_join(.., 0, what follows them); the CRC is
 * the sum (xor) of such parts and of crc_zeros(all of it). So elements may come in any order. */
uint32_t crc32_zeros(uint64_t nbytes);
uint64_t crc64_zeros(uint64_t nbytes);

/* ---- CRC-64 without its inversions ----
 *
 * Zeros have the raw CRC 0, so that what stands anywhere in a text of zeros has the raw CRC of it
 * alone, moved up by what follows; and the CRC of any text is the sum (xor) of the raw CRCs of its
 * parts so moved, and of crc64_zeros(all of it). */
uint64_t crc64_raw(uint64_t raw, const void *bytes, uint64_t nbytes); /* start with 0 */
uint64_t crc64_shift(uint64_t raw, uint64_t nbytes);                  /* up to 15 x 60 ns */

/* Moving by one distance again and again: one multiplication by crc64_power(nbytes), or, where it is
 * many times, by tables made once (1 us, 16 KiB). */
uint64_t crc64_power(uint64_t nbytes);
uint64_t crc64_multiply(uint64_t raw, uint64_t power);

typedef struct crc64_shifter {
    uint64_t rows[8][256];
} crc64_shifter;

void crc64_shifter_init(crc64_shifter *m, uint64_t nbytes);

static inline uint64_t crc64_shift_by(const crc64_shifter *m, uint64_t raw)
{
    uint64_t sum = 0;
    for (unsigned byte = 0; byte < 8; byte++)
        sum ^= m->rows[byte][raw >> 8 * byte & 0xFF];
    return sum;
}

#endif
