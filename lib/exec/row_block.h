/* row_block.h: reads one chunk sequentially in row blocks that fit a buffer, from a file or a
 * decoder.
 *
 *     row_block_reader b;
 *     RETURN_IF(row_block_open(&b, w, chunk, limit_bytes, err));
 *     while ((st = row_block_next(&b, buffer, &more, err)) == FSDPCK_OK && more)
 *         use(buffer, b.split.at, b.split.part, b.strides);   // a box of the chunk; byte strides
 *     st = row_block_close(&b, st, err);
 */
#ifndef FSDPCK_EXEC_ROW_BLOCK_H
#define FSDPCK_EXEC_ROW_BLOCK_H

#include "exec/exec_internal.h"

typedef struct row_block_reader {
    box_split split; /* the row block: at, part, span_bytes */
    unsigned ndim;
    uint64_t sizes[NDIM_MAX];
    uint64_t strides[NDIM_MAX]; /* bytes */
    /* private */
    worker *worker;
    uint64_t chunk;
    uint64_t limit_bytes;
    source_stream *stream;
    uint64_t stream_at;
    uint8_t *staged; /* the decoded chunk; NULL: it is read row block by row block */
} row_block_reader;

/* A stream with row blocks out of order is decoded into memory first. */
fsdpck_status row_block_open(row_block_reader *b, worker *w, uint64_t chunk, uint64_t limit_bytes,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Decodes all of a stream into memory, for any order of reading: row_block_element. */
fsdpck_status row_block_open_staged(row_block_reader *b, worker *w, uint64_t chunk,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The element at an index of a chunk opened that way. */
const uint8_t *row_block_element(const row_block_reader *b, const uint64_t *at);
/* `buffer` has room for limit_bytes. */
fsdpck_status row_block_next(row_block_reader *b, uint8_t *buffer, bool *more,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* If st is OK, reads a stream to its end and checks it. Returns the first failure. */
fsdpck_status row_block_close(row_block_reader *b, fsdpck_status st,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether the row blocks of both have the same order. */
bool row_block_same_strides(const struct exec *x, uint64_t chunk, uint64_t other);
/* Memory that staging the located chunks requires, one at a time. */
uint64_t row_block_staged_nbytes(const struct exec *x);

#endif
