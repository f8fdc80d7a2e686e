/* rank_assign.h: assigns each distinct box to one rank, which writes it, as torch's planner does
 * (dedup_save_plans, torch 2.3 to 2.15).
 *
 *     RETURN_IF(rank_assign(t, false, err));                    // cat_chunk.file, cat_object.file: a rank
 *     RETURN_IF(rank_order_by(t, catalogue_chunk_count(&t->cat), key, t->world_size, &o, err));
 *     for (uint64_t i = o.first[r]; i < o.first[r + 1]; i++)
 *         use(o.items[i]);                             // the chunks of rank r
 *     rank_order_release(&o);
 *
 * Items are assigned in the order in which ranks, then keys, first list them. Each goes to the
 * candidate rank with the fewest bytes so far, or to the lowest of these. An item counts the bytes
 * of the whole tensor, not of its chunk; a byte item counts 1. The candidates of a chunk are the
 * ranks that hold the same box; those of an item that is not sharded are all ranks. Chunks inside
 * objects are left out.
 *
 * With `lowest` an item goes to its lowest candidate, as with torch's
 * DefaultSavePlanner(dedup_save_to_lowest_rank=True), and byte items to rank 0.
 */
#ifndef FSDPCK_FORMATS_COMMON_RANK_ASSIGN_H
#define FSDPCK_FORMATS_COMMON_RANK_ASSIGN_H

#include "state/target.h"

fsdpck_status rank_assign(target *t, bool lowest, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Items 0 to count-1 sorted by key, stable within a key. */
typedef struct rank_order {
    budget *owner;
    uint32_t *items;
    uint64_t *first; /* nkeys + 1: start of each key's items */
    uint64_t count;
    uint64_t nkeys;
} rank_order;

/* The key of an item; CAT_NONE leaves it out. */
typedef uint32_t (*rank_key_fn)(const target *t, uint64_t item);

fsdpck_status rank_order_by(const target *t, uint64_t count, rank_key_fn key, uint64_t nkeys,
                            rank_order *order, fsdpck_error *err) FSDPCK_MUST_CHECK;
void rank_order_release(rank_order *order);

#endif
