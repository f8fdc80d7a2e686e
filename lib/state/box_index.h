/* box_index.h: search for the chunks of one tensor that intersect a box.
 *
 *     box_index x;
 *     RETURN_IF(box_index_build(&x, cat, tensor, &budget, err));
 *     box_query q;
 *     box_query_begin(&q, &x, offsets, sizes);
 *     while (box_query_next(&q))
 *         use(q.chunk, q.offsets, q.sizes);     // the intersection
 *     box_index_release(&x, &budget);
 *
 * Chunks without elements are omitted. Chunks with the same box are replicas: the first (lowest
 * chunk number) represents all, and `replicas` lists the others. Up to BOX_INDEX_LEAF distinct
 * boxes are scanned; more are stored in an implicit binary tree of bounding boxes whose leaves are
 * even divisions of `order`. Building takes O(n log n), also for hostile boxes.
 *
 * Read-only after building, so any number of threads may query.
 */
#ifndef FSDPCK_STATE_BOX_INDEX_H
#define FSDPCK_STATE_BOX_INDEX_H

#include "state/catalogue.h"

#define BOX_INDEX_LEAF 8u

typedef struct box_replica {
    uint32_t first; /* both relative to first_chunk */
    uint32_t again;
} box_replica;

typedef struct box_index {
    const catalogue *cat;
    uint64_t first_chunk;
    uint32_t tensor;
    uint32_t ndim;
    uint32_t total;        /* chunks of the tensor */
    uint32_t count;        /* distinct boxes with elements */
    uint32_t *order;       /* count of them, relative to first_chunk */
    uint32_t leaves;       /* power of two; 0: no tree, scan */
    uint64_t *bounds;      /* of node i (root 1): ndim low ends, then ndim high ends, at i*2*ndim */
    box_replica *replicas; /* sorted by first, then again */
    uint32_t replica_count;
    uint32_t empty_count;
} box_index;

fsdpck_status box_index_build(box_index *x, const catalogue *cat, uint32_t tensor, budget *owner,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* With the budget it was built on. A zeroed index may be released. */
void box_index_release(box_index *x, budget *owner);

/* Range of `order` under leaf i. */
static inline uint32_t box_index_leaf_begin(const box_index *x, uint32_t leaf)
{
    return (uint32_t)((uint64_t)x->count * leaf / x->leaves);
}

typedef struct box_query {
    /* result */
    uint64_t chunk;
    uint64_t offsets[NDIM_MAX];
    uint64_t sizes[NDIM_MAX];
    /* private */
    const box_index *index; /* NULL: scan chunks next..end */
    const catalogue *cat;
    const uint64_t *want_offsets; /* borrowed */
    const uint64_t *want_sizes;
    uint64_t next, end;
    unsigned ndim;
    unsigned depth;
    uint32_t stack[40]; /* nodes to visit; a tree has at most 31 levels */
} box_query;

/* The box is borrowed until the query ends, and must have elements. The second form needs no index:
 * it scans all chunks of a tensor with few chunks, including replicas. */
void box_query_begin(box_query *q, const box_index *x, const uint64_t *offsets,
                     const uint64_t *sizes);
void box_query_begin_scan(box_query *q, const catalogue *cat, uint32_t tensor,
                          const uint64_t *offsets, const uint64_t *sizes);
bool box_query_next(box_query *q);

/* "[0:4, 8:16]", truncated to the capacity; returns text. */
char *box_text(char *text, size_t capacity_bytes, const uint64_t *offsets, const uint64_t *sizes,
               unsigned ndim);

#endif
