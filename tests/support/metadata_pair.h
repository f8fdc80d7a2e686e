/* metadata_pair.h: a `.metadata` read by both readers, as a whole and condensed. */
#ifndef FSDPCK_TEST_METADATA_PAIR_H
#define FSDPCK_TEST_METADATA_PAIR_H

#include "formats/dcp/dcp_metadata.h"

/* PROTO 4 and the opcodes in frames of at least `frame_nbytes` (0: one frame), which end between
 * opcodes as far as these are known. */
void metadata_frames(const uint8_t *opcodes, size_t nbytes, size_t frame_nbytes, text_buf *out);

/* Reads the bytes with both, and aborts if the condensed reader accepts what the other one refuses, or
 * their records, names or values differ. window_nbytes, nthreads: dcp_bytes. False: the condensed reader left
 * the bytes to the other one. */
bool metadata_pair_equal(const uint8_t *bytes, size_t nbytes, size_t window_nbytes,
                         unsigned nthreads, bool opaque);

#endif
