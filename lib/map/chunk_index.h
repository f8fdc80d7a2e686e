/* chunk_index.h: the chunks of a tensor that a box may share elements with, without looking at all of them.
 *
 *     chunk_index x;
 *     chunk_index_init(&x, &cat, &budget);
 *     for each group of tensors:
 *         chunk_index_clear(&x);
 *         RETURN_IF(chunk_index_find(&x, tensor, begins, ends, &chunks, &count, err));
 *     chunk_index_release(&x);
 *
 * Chunks are sorted by each dim that divides them, when a tensor is first asked for: n log n steps.
 */
#ifndef FSDPCK_MAP_CHUNK_INDEX_H
#define FSDPCK_MAP_CHUNK_INDEX_H

#include "state/catalogue.h"

typedef struct chunk_index {
    const catalogue *cat;
    vec tensors; /* indexed_tensor, by number */
    vec dims;    /* indexed_dim */
    vec entries; /* indexed_chunk, by dim, then offset */
    vec found;   /* uint64_t */
    uint64_t compared;
} chunk_index;

/* `c` is borrowed and must be sealed. */
void chunk_index_init(chunk_index *x, const catalogue *c, budget *owner);
void chunk_index_release(chunk_index *x);
void chunk_index_clear(chunk_index *x);
/* Numbers of chunks, ascending, until the next call: all that have elements in [begins, ends) of every dim, and
 * perhaps others. */
fsdpck_status chunk_index_find(chunk_index *x, uint32_t tensor, const uint64_t *begins,
                               const uint64_t *ends, const uint64_t **chunks, size_t *count,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Chunks that were found so far. */
uint64_t chunk_index_compared(const chunk_index *x);

#endif
