/* value_map.h: a hash table from 64-bit keys (not 0) to 64-bit numbers, against a budget.
 *
 *     value_map map = VALUE_MAP(pool->owner);
 *     uint64_t *slot = value_map_put(&map, v, &fresh, err);   // until the next put; NULL: LIMIT
 *     value_map_release(&map);
 */
#ifndef FSDPCK_STATE_VALUE_MAP_H
#define FSDPCK_STATE_VALUE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"

struct value_map_entry;

typedef struct value_map {
    struct value_map_entry *entries;
    size_t capacity; /* power of two, or 0 */
    size_t count;
    uint64_t seed;
    budget *owner;
} value_map;

#define VALUE_MAP(budget_ptr) ((value_map){.owner = (budget_ptr)})

/* The number stored for a key, initially 0; *fresh (may be NULL) is set if the key is new. */
uint64_t *value_map_put(value_map *m, uint64_t key, bool *fresh, fsdpck_error *err);
/* NULL for an unknown key. */
uint64_t *value_map_find(const value_map *m, uint64_t key);
void value_map_release(value_map *m);

#endif
