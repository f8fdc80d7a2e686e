#include "state/value_map.h"

#include "base/platform.h"

struct value_map_entry {
    uint64_t key;
    uint64_t number;
};

enum { FIRST_CAPACITY = 16 };

/* Seeded, so that no input can choose keys that collide. */
static size_t place_of(const value_map *m, uint64_t key)
{
    __extension__ typedef unsigned __int128 u128;
    const u128 p = (u128)(key ^ m->seed) * 0x9E3779B97F4A7C15u;
    return (size_t)((uint64_t)p ^ (uint64_t)(p >> 64)) & (m->capacity - 1);
}

/* The entry of the key, or the free entry for it. */
static struct value_map_entry *entry_of(const value_map *m, uint64_t key)
{
    size_t i = place_of(m, key);
    while (m->entries[i].key != 0 && m->entries[i].key != key)
        i = (i + 1) & (m->capacity - 1);
    return &m->entries[i];
}

static fsdpck_status grow(value_map *m, fsdpck_error *err)
{
    const value_map old = *m;
    const size_t capacity = old.capacity > 0 ? old.capacity * 2 : FIRST_CAPACITY;
    struct value_map_entry *entries =
        budget_alloc(m->owner, (uint64_t)capacity * sizeof(*entries), err);
    if (entries == NULL)
        return FSDPCK_LIMIT;
    if (old.capacity == 0)
        platform_random(&m->seed, sizeof(m->seed));
    m->entries = entries;
    m->capacity = capacity;
    for (size_t i = 0; i < old.capacity; i++) {
        if (old.entries[i].key != 0)
            *entry_of(m, old.entries[i].key) = old.entries[i];
    }
    budget_free(m->owner, old.entries, (uint64_t)old.capacity * sizeof(*entries));
    return FSDPCK_OK;
}

uint64_t *value_map_put(value_map *m, uint64_t key, bool *fresh, fsdpck_error *err)
{
    if (m->count >= m->capacity / 2 && grow(m, err) != FSDPCK_OK)
        return NULL;
    struct value_map_entry *entry = entry_of(m, key);
    if (fresh != NULL)
        *fresh = entry->key == 0;
    m->count += entry->key == 0;
    entry->key = key;
    return &entry->number;
}

uint64_t *value_map_find(const value_map *m, uint64_t key)
{
    if (m->capacity == 0 || key == 0) /* key of a free entry */
        return NULL;
    struct value_map_entry *entry = entry_of(m, key);
    return entry->key == key ? &entry->number : NULL;
}

void value_map_release(value_map *m)
{
    budget_free(m->owner, m->entries, (uint64_t)m->capacity * sizeof(*m->entries));
    *m = VALUE_MAP(m->owner);
}
