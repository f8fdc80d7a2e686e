/* zstd_stream.h: one zstd frame that fills a range of a file, decoded front to back.
 *
 *     zstd_stream *z;
 *     zip_input in = {.read = fn, .ctx = c, .base_offset_bytes = blob_at, .nbytes = blob_nbytes};
 *     RETURN_IF(zstd_stream_open(&in, budget, &z, err));
 *     st = zstd_stream_read(z, dst, nbytes, err);               // exactly nbytes, or an error
 *     if (st == FSDPCK_OK)
 *         st = zstd_stream_finish(z, take_rest, ctx, err);      // decodes the rest, checks the end
 *     zstd_stream_close(z);                                     // at any time; NULL is fine
 *
 * Memory is limited to the largest accepted window (2^27 bytes, the default of `zstd -d`). zstd
 * allocates as the frame requires: 2 MiB for what torch's ZStandard extension writes. One thread
 * per stream.
 *
 * Errors: BADINPUT with Z-TRUNCATED (the range ends inside the frame), Z-TRAILING (the frame ends
 * before the range does), Z-CHECKSUM, Z-DATA; LIMIT with Z-WINDOW.
 */
#ifndef FSDPCK_FORMATS_COMMON_ZSTD_STREAM_H
#define FSDPCK_FORMATS_COMMON_ZSTD_STREAM_H

#include "formats/common/zip.h"

typedef struct zstd_stream zstd_stream;

fsdpck_status zstd_stream_open(const zip_input *in, budget *owner, zstd_stream **z,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Reads exactly nbytes; Z-TRUNCATED if the frame ends earlier. */
fsdpck_status zstd_stream_read(zstd_stream *z, void *dst, uint64_t nbytes,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Up to nbytes; *got is less only at the end of the frame. */
fsdpck_status zstd_stream_read_some(zstd_stream *z, void *dst, uint64_t nbytes, uint64_t *got,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Passes the rest to `take` (may be NULL) and checks that frame and range end together. */
typedef void (*zstd_take_fn)(void *ctx, const uint8_t *bytes, size_t nbytes);
fsdpck_status zstd_stream_finish(zstd_stream *z, zstd_take_fn take, void *ctx,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
void zstd_stream_close(zstd_stream *z);

#endif
