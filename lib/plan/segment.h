/* segment.h: walking a plan: its items, what is in an output range, the segments that fill it.
 *
 *     for (item = 0; item < plan_item_count(p); item++) {
 *         plan_get_item(p, item, &range);
 *         range_walk_begin(&w, p, &range);          // or any part of it
 *         while (range_walk_next(&w, &part)) {
 *             if (part.kind != RANGE_PART_CHUNK) {
 *                 ... part.constant: bytes [part.begin, part.end) of the file ...
 *                 continue;
 *             }
 *             segment_walk_begin(&s, p, part.chunk, part.first_elem, part.end_elem);
 *             while (segment_walk_next(&s))
 *                 ... one strided copy from s.src_chunk ...
 *         }
 *     }
 *
 * Output ranges cut files at multiples of the tile from the file's start, and may cut an element in
 * two: first_elem and end_elem then name the whole element.
 */
#ifndef FSDPCK_PLAN_SEGMENT_H
#define FSDPCK_PLAN_SEGMENT_H

#include "plan/box_index.h"
#include "plan/plan.h"

typedef struct output_range {
    uint32_t file;
    uint64_t begin; /* bytes of the file */
    uint64_t end;
} output_range;

uint64_t plan_item_count(const plan *p);
void plan_get_item(const plan *p, uint64_t item, output_range *range);
/* The largest range of any item. */
uint64_t plan_tile_nbytes(const plan *p);

typedef enum range_part_kind {
    RANGE_PART_CHUNK,
    RANGE_PART_CONSTANT,
    RANGE_PART_DEFERRED
} range_part_kind;

/* A constant, deferred bytes or a part of one target chunk within a range. */
typedef struct range_part {
    range_part_kind kind;
    const char *constant; /* RANGE_PART_CONSTANT: its bytes for [begin, end) */
    uint64_t deferred;    /* RANGE_PART_DEFERRED: index in target.lates */
    uint64_t begin;       /* bytes of the file */
    uint64_t end;
    uint64_t chunk;      /* RANGE_PART_CHUNK, and what follows: of the target */
    uint64_t first_elem; /* flat in the chunk */
    uint64_t end_elem;
    uint64_t chunk_begin; /* byte of the file at which the chunk's first element lies */
} range_part;

typedef struct range_walk {
    const plan *plan;
    output_range range;
    uint64_t order, order_end;
    uint64_t constant, constant_end;
    uint64_t deferred, deferred_end;
    uint64_t last_begin, last_end; /* of the last chunk given, to pass over its aliases */
} range_walk;

/* Parts come in the order of the output and never share a byte: a chunk that has the very place of
 * another (an alias) is passed over. Bytes that no part names are zeros. */
void range_walk_begin(range_walk *w, const plan *p, const output_range *range);
bool range_walk_next(range_walk *w, range_part *part);

/* One strided copy: the box of `sizes` from src_chunk, beginning at src_offsets inside its box, to
 * the target chunk, beginning at element dst_first; strides of the destination are dst_strides
 * (elements, row-major of the target chunk), those of the source are known once it is located. */
typedef struct segment_walk {
    uint64_t src_chunk;
    unsigned ndim;
    uint64_t sizes[NDIM_MAX];
    uint64_t src_offsets[NDIM_MAX];
    uint64_t dst_strides[NDIM_MAX];
    uint64_t dst_first;
    uint64_t nelems;
    uint32_t src_tensor;
    /* private */
    const plan *plan;
    bool cutting;
    uint64_t box_offsets[NDIM_MAX]; /* box wanted, in the tensor */
    uint64_t dst_offsets[NDIM_MAX]; /* of the target chunk, in the tensor */
    uint64_t dst_sizes[NDIM_MAX];
    box_cut cut;
    box_query query;
} segment_walk;

/* Elements [first_elem, end_elem) of a target chunk, row-major. */
void segment_walk_begin(segment_walk *s, const plan *p, uint64_t target_chunk, uint64_t first_elem,
                        uint64_t end_elem);
bool segment_walk_next(segment_walk *s);

/* A query for the source chunks that meet a box, on whatever there is for the tensor. */
void plan_query_begin(const plan *p, uint32_t source_tensor, box_query *q, const uint64_t *offsets,
                      const uint64_t *sizes);
/* Source tensor that feeds a target tensor. */
uint32_t plan_source_tensor(const plan *p, uint32_t target_tensor);
const catalogue *plan_source(const plan *p);
const target *plan_target(const plan *p);
plan_replicas plan_replica_policy(const plan *p);
/* Whether a source tensor is read at all. */
bool plan_uses_tensor(const plan *p, uint32_t source_tensor);
/* Replicas of the tensor, pairs relative to its first chunk, sorted; NULL and 0 where there are
 * none. */
const box_replica *plan_replicas_of(const plan *p, uint32_t source_tensor, uint32_t *count);
/* Target chunks with bytes, by file and offset; aliases follow each other. */
uint64_t plan_order_count(const plan *p);
uint64_t plan_ordered_chunk(const plan *p, uint64_t order);
/* Of the chunks that lie in the very place of this one (itself, and its aliases), that which
 * range_walk gives. Not for LOCATION_EMPTY. */
uint64_t plan_first_alias(const plan *p, uint64_t target_chunk);
/* Whether another chunk lies in its very place. */
bool plan_has_alias(const plan *p, uint64_t target_chunk);

#endif
