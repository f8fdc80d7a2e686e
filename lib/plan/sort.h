/* sort.h: stable sort of (key, item) pairs, with a tie-break that sees a context. */
#ifndef FSDPCK_PLAN_SORT_H
#define FSDPCK_PLAN_SORT_H

#include <stddef.h>
#include <stdint.h>

typedef struct sort_pair {
    uint64_t key;
    uint32_t item;
} sort_pair;

/* Negative, 0 or positive for items of equal key. */
typedef int (*sort_tie_fn)(const void *ctx, uint32_t a, uint32_t b);

/* Ascending by key, then by `tie` (may be NULL); what is equal keeps its order. `scratch` has room
 * for n pairs. O(n log n) whatever the input; O(n) where it is sorted already. */
void sort_pairs(sort_pair *pairs, sort_pair *scratch, size_t n, sort_tie_fn tie, const void *ctx);

/* Reorders so that pairs[k] is what a full sort by key would put there, with none greater before it
 * and none less after it. Expected O(n). */
void sort_select(sort_pair *pairs, size_t n, size_t k);

#endif
