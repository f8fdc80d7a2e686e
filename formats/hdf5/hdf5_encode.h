/* hdf5_encode.h: applies the filters of one chunk: shuffle, then deflate. hdf5_decode.h reverses
 * them.
 *
 *     RETURN_IF(hdf5_coder_new(level, most_nbytes, &c, err));
 *     RETURN_IF(hdf5_encode(c, itemsize, bytes, nbytes, chunk_nbytes, coded, &coded_nbytes, &mask, err));
 *     hdf5_coder_free(c);
 */
#ifndef FSDPCK_FORMATS_HDF5_ENCODE_H
#define FSDPCK_FORMATS_HDF5_ENCODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct hdf5_coder hdf5_coder;

/* For chunks of most_nbytes and less, by one thread at a time. */
fsdpck_status hdf5_coder_new(unsigned level, uint64_t most_nbytes, hdf5_coder **c,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
void hdf5_coder_free(hdf5_coder *c); /* NULL is fine */
/* Approximate memory of one. */
uint64_t hdf5_coder_nbytes(uint64_t most_nbytes);

/* Encodes nbytes of a chunk, followed by zeros, as HDF5 requires for a chunk that crosses the edge.
 * Elements of one byte are not shuffled. `coded` has space for chunk_nbytes: data that deflate does
 * not shorten stays only shuffled. *mask then has a bit for each filter that was not applied, as in
 * HDF5. */
fsdpck_status hdf5_encode(hdf5_coder *c, unsigned itemsize, const uint8_t *bytes, uint64_t nbytes,
                          uint64_t chunk_nbytes, uint8_t *coded, uint64_t *coded_nbytes,
                          uint32_t *mask, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
