/* sort.h: stable sort of (key, item) pairs, with a tie-break function that receives a context. */
#ifndef FSDPCK_STATE_SORT_H
#define FSDPCK_STATE_SORT_H

#include <stddef.h>
#include <stdint.h>

typedef struct sort_pair {
    uint64_t key;
    uint32_t item;
} sort_pair;

/* Negative, 0 or positive for items of equal key. */
typedef int (*sort_tie_fn)(const void *ctx, uint32_t a, uint32_t b);

/* Ascending by key, then by `tie` (may be NULL); equal pairs keep their order. `scratch` has space
 * for n pairs. O(n log n) for any input; O(n) if sorted already. */
void sort_pairs(sort_pair *pairs, sort_pair *scratch, size_t n, sort_tie_fn tie, const void *ctx);

/* Partial sort: pairs[k] becomes the pair that a full sort by key would put there, with none
 * greater before it and none less after it. Expected O(n). */
void sort_select(sort_pair *pairs, size_t n, size_t k);

#endif
