#include "formats/common/pickle_memo.h"

#include <inttypes.h>
#include <string.h>

fsdpck_status pickle_memo_grow(pickle_memo *m, uint64_t index, fsdpck_error *err)
{
    const size_t want = (size_t)(index / 64) + 1;
    return vec_push_n(&m->blocks, want - m->blocks.count, err) == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
}

fsdpck_status pickle_memo_prepare(pickle_memo *m, uint64_t max_entries, fsdpck_error *err)
{
    uint64_t total = 0;
    for (size_t i = 0; i < m->blocks.count; i++) {
        pickle_memo_block *block = VEC_AT(&m->blocks, pickle_memo_block, i);
        block->before = total;
        total += pickle_memo_ones(block->wanted);
    }
    if (total > max_entries)
        return FAIL_WITH(err, LIMIT, PKL_LIMIT, ("memo of the pickle is too large"),
                         (expected, "at most %" PRIu64 " fetched entries", max_entries),
                         (found, "%" PRIu64, total));
    if (total == 0)
        return FSDPCK_OK;
    value *entries = vec_push_n(&m->entries, (size_t)total, err);
    if (entries == NULL)
        return FSDPCK_LIMIT;
    memset(entries, 0xFF, (size_t)total * sizeof(value)); /* PICKLE_MEMO_UNSET */
    return FSDPCK_OK;
}

bool pickle_memo_get(const pickle_memo *m, uint64_t index, value *v)
{
    const value *entry = pickle_memo_at(m, index);
    if (entry == NULL || *entry == PICKLE_MEMO_UNSET)
        return false;
    *v = *entry;
    return true;
}

void pickle_memo_release(pickle_memo *m)
{
    VEC_RELEASE_ALL(&m->blocks, &m->entries);
}
