/* box_read_internal.h: a cursor on a box, for box_read.c and box_read_chunk.c. */
#ifndef FSDPCK_STATE_BOX_READ_INTERNAL_H
#define FSDPCK_STATE_BOX_READ_INTERNAL_H

#include "state/box_read.h"
#include "state/element_ops.h"

/* Short runs are read together with the gaps between them, up to so much. */
#define BOX_SPAN_NBYTES ((uint64_t)256 << 10)

/* A chunk of a cursor's box. */
typedef struct cursor_chunk {
    uint64_t chunk;
    bool located;
    bool in_order; /* a stream, and parts in row-major order are read front to back */
    place where;   /* with strides */
    uint64_t left; /* elements of the box that were not read */
    source_stream *stream;
    uint64_t stream_at; /* decoded bytes that were read */
    uint8_t *staged;    /* decoded bytes from staged_at on */
    uint64_t staged_at;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX]; /* of the chunk */
} cursor_chunk;

struct box_cursor {
    const box_reader *r;
    uint32_t tensor;
    unsigned ndim;
    dtype type;
    uint64_t itemsize;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX]; /* of the box */
    cursor_chunk *chunks;                        /* by number */
    size_t count;
    uint8_t *span;    /* BOX_SPAN_NBYTES; NULL until needed, as most reads are runs */
    uint8_t *scratch; /* of element_ops; likewise */
};

/* The intersection of the chunk and a box; byte strides of both sides. */
typedef struct box_part {
    strided copy; /* dims of the tensor */
    uint64_t at;  /* of its first element: bytes from the chunk's first one */
    uint64_t to;  /* bytes in the memory of the box */
} box_part;

/* Asks the source for the place of a chunk, once. */
fsdpck_status box_chunk_locate(const box_cursor *c, cursor_chunk *k,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The copy that brings a query's part of the chunk to the memory of a box. */
void box_chunk_find_part(const box_cursor *c, const cursor_chunk *k, const box_query *q,
                         const uint64_t *offsets, const uint64_t *sizes, box_part *p);
/* Reads a part to the memory of its box. */
fsdpck_status box_chunk_read(box_cursor *c, cursor_chunk *k, const box_part *p, uint8_t *memory,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Checks and closes the stream of a chunk, if it has one. */
fsdpck_status box_chunk_finish(const box_cursor *c, cursor_chunk *k,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
