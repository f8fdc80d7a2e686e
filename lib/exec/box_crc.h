/* box_crc.h: the contribution of a box's bytes to the CRC-64 of its tensor.
 *
 *     const box_bytes b = {ndim, shape, itemsize, offsets, sizes};
 *     sum ^= box_crc(&b, begin, end, bytes);           // any range of the box, on any thread
 *     ...
 *     crc = sum ^ crc64_zeros(bytes of the tensor);    // once all boxes are there
 *
 * A box is row-major; in the tensor its bytes are in runs. Each run's raw CRC (base/crc.h) is
 * shifted by the bytes that follow it in the tensor. Within one row of the box, runs have a
 * constant distance, so Horner's scheme applies and thin runs cost a few ns each.
 */
#ifndef FSDPCK_EXEC_BOX_CRC_H
#define FSDPCK_EXEC_BOX_CRC_H

#include <stdbool.h>
#include <stdint.h>

typedef struct box_bytes {
    unsigned ndim;
    const uint64_t *shape; /* of the tensor */
    uint64_t itemsize_bytes;
    const uint64_t *offsets, *sizes; /* of the box, in elements; no size is 0 */
} box_bytes;

/* Raw CRC contribution of bytes [begin, end) of the box, begin < end; the range may split
 * elements. */
uint64_t box_crc(const box_bytes *b, uint64_t begin, uint64_t end, const uint8_t *bytes);

/* Whether these bytes are one run of the tensor; *after_nbytes: bytes of the tensor after it. Then
 * box_crc is crc64_shift(crc64_raw(0, bytes, end - begin), *after_nbytes). */
bool box_is_run(const box_bytes *b, uint64_t begin, uint64_t end, uint64_t *after_nbytes);

#endif
