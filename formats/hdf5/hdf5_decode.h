/* hdf5_decode.h: decodes the filters of one chunk, as a stream; also for data without bytes in the
 * file.
 *
 *     *src = (source){..., .stream_open = ..., .stream_read = hdf5_stream_read,
 *                     .stream_finish = hdf5_stream_finish, .stream_close = hdf5_stream_close};
 *
 * Errors: BADINPUT with H5-FLETCHER, H5-DEFLATE (also if the output is too short or too long);
 * LIMIT with H5-BOMB if both output and input are too long.
 */
#ifndef FSDPCK_FORMATS_HDF5_DECODE_H
#define FSDPCK_FORMATS_HDF5_DECODE_H

#include "formats/hdf5/hdf5_file.h"
#include "state/source.h"

/* Largest memory of the stream of a chunk while it is opened: input and output of a filter. */
uint64_t hdf5_stream_nbytes(const hdf5_dataset *d, uint64_t stored_nbytes);
/* The dataset is borrowed for the life of the stream; takes ownership of `stored` (malloc'd), also
 * on failure. `offset_bytes` is for messages. */
fsdpck_status hdf5_stream_decode(const hdf5_dataset *d, uint32_t mask, uint8_t *stored,
                                 uint64_t stored_nbytes, uint64_t offset_bytes, source_stream **s,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* nbytes at `bytes`, borrowed for the life of the stream. */
fsdpck_status hdf5_stream_of(const uint8_t *bytes, uint64_t nbytes, source_stream **s,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Repeats the fill value. */
fsdpck_status hdf5_stream_fill(const hdf5_dataset *d, source_stream **s,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

fsdpck_status hdf5_stream_read(source_stream *s, void *dst, uint64_t nbytes,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status hdf5_stream_finish(source_stream *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
void hdf5_stream_close(source_stream *s); /* NULL is fine */

/* HDF5's form of Fletcher's sum over 16-bit words, high byte first. */
uint32_t hdf5_fletcher32(const uint8_t *bytes, uint64_t nbytes);

#endif
