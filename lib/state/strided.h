/* strided.h: copies a box between memories with different strides, and splits it to fit a buffer.
 *
 *     strided s = {.ndim = 2, .sizes = {rows, cols}, .src_strides = {...}, .dst_strides = {...}};
 *     strided_collapse(&s);
 *     strided_copy(&s, itemsize, dst, src);
 *
 * Strides are bytes and never negative. Dims are in the destination's (row-major) order, so
 * destination strides descend.
 */
#ifndef FSDPCK_STATE_STRIDED_H
#define FSDPCK_STATE_STRIDED_H

#include "state/box.h"

typedef struct strided {
    unsigned ndim;
    uint64_t sizes[NDIM_MAX];
    uint64_t src_strides[NDIM_MAX];
    uint64_t dst_strides[NDIM_MAX];
} strided;

/* Drops dims of size 1 and merges neighbors that form one dim on both sides. */
void strided_collapse(strided *s);

/* Whether it is one run of bytes on both sides (after strided_collapse). */
bool strided_is_run(const strided *s, uint64_t src_itemsize, uint64_t dst_itemsize);

/* Moves items of 1, 2, 4, 8 or 16 bytes. The memories do not overlap. */
void strided_copy(const strided *s, size_t itemsize, uint8_t *dst, const uint8_t *src);

uint64_t strided_nelems(const strided *s);

/* Bytes from the first byte of the box's first item to the last byte of its last one. */
uint64_t strided_span(unsigned ndim, const uint64_t *sizes, const uint64_t *strides,
                      uint64_t itemsize);

/* Splits a box into boxes with spans of at most limit_bytes each. If strides nest (each is at least
 * the span of the smaller ones), offsets ascend, so a stream can be read sequentially.
 *
 *     box_split_begin(&b, ndim, sizes, strides, itemsize, limit);
 *     while (box_split_next(&b))
 *         use(b.at, b.part, b.offset_bytes, b.span_bytes);
 *
 * A single item is never split: limit_bytes below itemsize counts as itemsize. */
typedef struct box_split {
    uint64_t at[NDIM_MAX];   /* offsets of the found box in the whole box */
    uint64_t part[NDIM_MAX]; /* its sizes */
    uint64_t offset_bytes;   /* of its first item */
    uint64_t span_bytes;
    /* private */
    unsigned ndim;
    unsigned outer; /* dims order[0..outer) are single indices, order[outer] is split into steps */
    uint64_t step;
    uint64_t inner_bytes; /* span of the dims after order[outer] */
    uint64_t itemsize;
    const uint64_t *sizes;
    const uint64_t *strides;
    unsigned char order[NDIM_MAX]; /* dims by stride, descending */
    bool begun;
} box_split;

void box_split_begin(box_split *b, unsigned ndim, const uint64_t *sizes, const uint64_t *strides,
                     uint64_t itemsize, uint64_t limit_bytes);
bool box_split_next(box_split *b);
/* Before the first box: the number of boxes. */
uint64_t box_split_count(const box_split *b);
/* Before the first box: makes them multiples of the blocks in which strided_copy transposes; to enlarge
 * them takes spans of at most limit_bytes. */
void box_split_fit_blocks(box_split *b, uint64_t limit_bytes);

/* Whether box_split_next returns ascending offsets: no two items share a byte and strides nest
 * (stride 0 is allowed). */
bool strides_nest(unsigned ndim, const uint64_t *sizes, const uint64_t *strides, uint64_t itemsize);

#endif
