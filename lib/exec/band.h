/* band.h: reading one chunk front to back in bands that fit a buffer, from a file or a decoder.
 *
 *     band_reader b;
 *     RETURN_IF(band_open(&b, w, chunk, limit_bytes, err));
 *     while ((st = band_next(&b, buffer, &more, err)) == FSDPCK_OK && more)
 *         use(buffer, b.split.at, b.split.part, b.strides);   // a box of the chunk; byte strides
 *     st = band_close(&b, st, err);
 */
#ifndef FSDPCK_EXEC_BAND_H
#define FSDPCK_EXEC_BAND_H

#include "exec/exec_state.h"

typedef struct band_reader {
    box_split split; /* the band: at, part, span_bytes */
    unsigned ndim;
    uint64_t sizes[NDIM_MAX];
    uint64_t strides[NDIM_MAX]; /* bytes */
    /* private */
    worker *worker;
    uint64_t chunk;
    uint64_t limit_bytes;
    source_stream *stream;
    uint64_t stream_at;
} band_reader;

/* UNSUPPORTED for a compressed chunk whose strides do not nest, which no torch writes. */
fsdpck_status band_open(band_reader *b, worker *w, uint64_t chunk, uint64_t limit_bytes,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;
/* `buffer` has room for limit_bytes. */
fsdpck_status band_next(band_reader *b, uint8_t *buffer, bool *more,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;
/* With st OK a stream is read to its end and checked. Returns the first failure. */
fsdpck_status band_close(band_reader *b, fsdpck_status st, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
