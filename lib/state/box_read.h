/* box_read.h: reads boxes of tensors through a source, from all chunks that hold their elements.
 *
 *     box_reader r;
 *     box_reader_init(&r, &cat, &src, &budget);
 *     RETURN_IF(box_reader_add(&r, tensor, err));                     // one thread, before reading
 *     RETURN_IF(box_read(&r, tensor, offsets, sizes, memory, err));   // any number of threads
 *     box_reader_release(&r);
 *
 * `memory` becomes row-major, in the tensor's own dtype, little-endian: byte order, conj, neg and added
 * constants are resolved. Of chunks with the same box, only the first is read. Elements that are in no
 * chunk are an error (BADINPUT, CHUNK-GAP). Chunks with different boxes must not overlap.
 *
 * A box that is too large for the memory is read part by part:
 *
 *     box_cursor *c;
 *     RETURN_IF(box_cursor_open(&r, tensor, offsets, sizes, &c, err));
 *     for each part of the box, in row-major order:
 *         st = box_cursor_read(c, part_offsets, part_sizes, memory, err);
 *     if (st == FSDPCK_OK)
 *         st = box_cursor_finish(c, err);                             // checks streams to their ends
 *     box_cursor_close(c);
 *
 * A chunk that is a stream is then decoded once. One whose elements are not stored in row-major order is
 * decoded into memory: the part of it that lies in the box. So do not
 * divide a tensor into boxes that divide streams: each box decodes its streams from their beginning.
 */
#ifndef FSDPCK_STATE_BOX_READ_H
#define FSDPCK_STATE_BOX_READ_H

#include "state/box_index.h"
#include "state/source.h"

typedef struct box_reader {
    const catalogue *cat;
    const source *src;
    budget *owner;
    vec indices; /* box_index, by tensor; cat NULL: not added */
} box_reader;

/* All are borrowed. The catalogue must be sealed. */
void box_reader_init(box_reader *r, const catalogue *cat, const source *src, budget *owner);
void box_reader_release(box_reader *r);
fsdpck_status box_reader_add(box_reader *r, uint32_t tensor, fsdpck_error *err) FSDPCK_MUST_CHECK;
bool box_reader_has(const box_reader *r, uint32_t tensor);
const box_index *box_reader_index(const box_reader *r, uint32_t tensor);

fsdpck_status box_read(const box_reader *r, uint32_t tensor, const uint64_t *offsets,
                       const uint64_t *sizes, void *memory, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same from one chunk, which contains the box, without an index of its tensor: for replicas. */
fsdpck_status box_read_chunk(const box_reader *r, uint64_t chunk, const uint64_t *offsets,
                             const uint64_t *sizes, void *memory,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

typedef struct box_cursor box_cursor;

/* The box is copied. It has elements. */
fsdpck_status box_cursor_open(const box_reader *r, uint32_t tensor, const uint64_t *offsets,
                              const uint64_t *sizes, box_cursor **c,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status box_cursor_read(box_cursor *c, const uint64_t *offsets, const uint64_t *sizes,
                              void *memory, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status box_cursor_finish(box_cursor *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
void box_cursor_close(box_cursor *c); /* accepts NULL */

/* Calls locate() for all chunks of a box, which checks their headers. Sets *streams if any is a stream. */
fsdpck_status box_locate(const box_reader *r, uint32_t tensor, const uint64_t *offsets,
                         const uint64_t *sizes, bool *streams, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the first chunk of a tensor is a stream. Locates it, if necessary. */
fsdpck_status box_first_is_stream(const box_reader *r, uint32_t tensor, bool *is_stream,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Approximate memory of a cursor on a box. */
uint64_t box_cursor_nbytes(const box_reader *r, uint32_t tensor, const uint64_t *offsets,
                           const uint64_t *sizes);
/* The same of box_read_chunk. */
uint64_t box_read_chunk_nbytes(const box_reader *r, uint64_t chunk, const uint64_t *offsets,
                               const uint64_t *sizes);

#endif
