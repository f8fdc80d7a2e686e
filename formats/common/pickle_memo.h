/* pickle_memo.h: the memo of a pickle, with space only for the entries that are fetched.
 *
 * The first pass marks the indices that are fetched, then space is allocated; the machine stores
 * and fetches.
 *
 * Holds a bit for every index up to the largest fetched one and, for each 64, the number of earlier
 * entries. A look-up costs two loads and a population count.
 */
#ifndef FSDPCK_FORMATS_COMMON_PICKLE_MEMO_H
#define FSDPCK_FORMATS_COMMON_PICKLE_MEMO_H

#include "base/alloc.h"
#include "state/value.h"

typedef struct pickle_memo_block {
    uint64_t wanted; /* a bit for each index */
    uint64_t before; /* entries of all earlier blocks */
} pickle_memo_block;

typedef struct pickle_memo {
    vec blocks;  /* pickle_memo_block */
    vec entries; /* value */
} pickle_memo;

/* Content of an entry before the first store: a handle that no value has. */
#define PICKLE_MEMO_UNSET UINT64_MAX

fsdpck_status pickle_memo_grow(pickle_memo *m, uint64_t index, fsdpck_error *err) FSDPCK_MUST_CHECK;

static inline fsdpck_status pickle_memo_mark(pickle_memo *m, uint64_t index, fsdpck_error *err)
{
    if (index / 64 >= m->blocks.count)
        RETURN_IF(pickle_memo_grow(m, index, err));
    VEC_AT(&m->blocks, pickle_memo_block, index / 64)->wanted |= UINT64_C(1) << index % 64;
    return FSDPCK_OK;
}

/* LIMIT if more than max_entries are marked. */
fsdpck_status pickle_memo_prepare(pickle_memo *m, uint64_t max_entries,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The bits of an index and those after it, up to the end of the block. */
static inline uint64_t pickle_memo_marked_from(const pickle_memo *m, uint64_t index)
{
    if (index / 64 >= m->blocks.count)
        return 0;
    return VEC_AT(&m->blocks, const pickle_memo_block, index / 64)->wanted >> index % 64;
}

/* __builtin_popcountll is a slow call where the processor is not known to have an instruction. */
static inline uint64_t pickle_memo_ones(uint64_t bits)
{
    bits -= bits >> 1 & UINT64_C(0x5555555555555555);
    bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
    bits = (bits + (bits >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    return bits * UINT64_C(0x0101010101010101) >> 56;
}

/* The value of an index; false if it is not stored, or never fetched. */
bool pickle_memo_get(const pickle_memo *m, uint64_t index, value *v);

/* NULL if the index is never fetched. */
static inline value *pickle_memo_at(const pickle_memo *m, uint64_t index)
{
    if (index / 64 >= m->blocks.count)
        return NULL;
    const pickle_memo_block *block = VEC_AT(&m->blocks, const pickle_memo_block, index / 64);
    const uint64_t bit = UINT64_C(1) << index % 64;
    if ((block->wanted & bit) == 0)
        return NULL;
    const uint64_t at = block->before + pickle_memo_ones(block->wanted & (bit - 1));
    return VEC_AT(&m->entries, value, at);
}

void pickle_memo_release(pickle_memo *m);

#endif
