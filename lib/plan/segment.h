/* segment.h: iterators over a plan: its items, the parts of an output range, the segments that fill
 * it.
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
 * Output ranges divide files at multiples of the tile from the file's start, and may split an
 * element: first_elem and end_elem then include the whole element.
 */
#ifndef FSDPCK_PLAN_SEGMENT_H
#define FSDPCK_PLAN_SEGMENT_H

#include "state/box_index.h"
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

/* Constant bytes, deferred bytes or a part of one target chunk within a range. */
typedef struct range_part {
    range_part_kind kind;
    const char *constant; /* RANGE_PART_CONSTANT: its bytes for [begin, end) */
    uint64_t deferred;    /* RANGE_PART_DEFERRED: index in the target's deferred bytes */
    uint64_t begin;       /* bytes of the file */
    uint64_t end;
    uint64_t chunk;      /* RANGE_PART_CHUNK, and the members below: of the target */
    uint64_t first_elem; /* flat in the chunk */
    uint64_t end_elem;
    uint64_t chunk_begin; /* file offset of the chunk's first element */
} range_part;

typedef struct range_walk {
    const plan *plan;
    output_range range;
    uint64_t order, order_end;
    uint64_t constant, constant_end;
    uint64_t deferred, deferred_end;
    uint64_t last_begin, last_end; /* of the last chunk returned, to skip its aliases */
} range_walk;

/* Parts come in the order of the output and never overlap: a chunk at the same location as another
 * (an alias) is skipped. Bytes outside all parts are zeros. */
void range_walk_begin(range_walk *w, const plan *p, const output_range *range);
bool range_walk_next(range_walk *w, range_part *part);

/* One strided copy: the box of `sizes` from src_chunk, beginning at src_offsets inside its box, to
 * the target chunk, beginning at element dst_first. The strides of the destination are dst_strides
 * (elements, row-major of the target chunk); those of the source are known after its location is
 * resolved. */
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

/* Queries the source chunks that intersect a box, by index or by scan. */
void plan_query_begin(const plan *p, uint32_t source_tensor, box_query *q, const uint64_t *offsets,
                      const uint64_t *sizes);
/* Source tensor of a target tensor. */
uint32_t plan_source_tensor(const plan *p, uint32_t target_tensor);
const catalogue *plan_source(const plan *p);
const target *plan_target(const plan *p);
plan_replicas plan_replica_policy(const plan *p);
/* Whether a source tensor is read at all. */
bool plan_uses_tensor(const plan *p, uint32_t source_tensor);
/* Replicas of the tensor, pairs relative to its first chunk, sorted; NULL and 0 if it has none. */
const box_replica *plan_replicas_of(const plan *p, uint32_t source_tensor, uint32_t *count);
/* Target chunks with bytes, by file and offset; aliases follow each other. */
uint64_t plan_order_count(const plan *p);
uint64_t plan_ordered_chunk(const plan *p, uint64_t order);
/* Of the chunks at the same location as this one (itself and its aliases), the one that range_walk
 * returns. Not for LOCATION_EMPTY. */
uint64_t plan_first_alias(const plan *p, uint64_t target_chunk);
/* Whether another chunk has the same location. */
bool plan_has_alias(const plan *p, uint64_t target_chunk);

#endif
