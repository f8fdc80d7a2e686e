#include "formats/dcp/dcp_name_order.h"

#include <string.h>

/* The lowest and the highest rank that wrote a blob; false if a file's rank is unknown. */
static bool find_ranks(const catalogue *cat, const uint8_t *holds, uint32_t *first, uint32_t *last)
{
    *first = CAT_NONE;
    *last = 0;
    for (size_t i = 0; i < catalogue_file_count(cat); i++) {
        const uint32_t rank = catalogue_file(cat, i)->rank;
        if (!holds[i])
            continue;
        if (rank == CAT_NONE)
            return false;
        *first = rank < *first ? rank : *first;
        *last = rank > *last ? rank : *last;
    }
    return true;
}

void dcp_find_joined(const dcp_builder *b, const dcp_metadata *m, const uint8_t *holds,
                     const uint32_t *saved_at, size_t nfqns, uint8_t *joined)
{
    uint32_t first, last, known_to = 0;
    bool has_order = false;

    memset(joined, b->has_lower_ranks, nfqns);
    /* fsdpck keeps the order of its input, whichever ranks it writes. */
    if (b->has_lower_ranks || m->is_by_fsdpck || !find_ranks(b->cat, holds, &first, &last) ||
        first == last)
        return;
    for (size_t f = 0; f < nfqns; f++)
        has_order = has_order || saved_at[f] > 0;
    memset(joined, !has_order, nfqns);
    for (size_t i = 0; i < m->entries.count; i++) {
        const dcp_entry *e = VEC_AT(&m->entries, const dcp_entry, i);
        if (!e->paired)
            continue;
        const uint32_t rank = catalogue_file(b->cat, e->file)->rank;
        if (rank == last && saved_at[e->fqn] > known_to)
            known_to = saved_at[e->fqn];
        if (rank == first && !has_order)
            joined[e->fqn] = 0;
    }
    for (size_t f = 0; f < nfqns; f++)
        joined[f] = joined[f] || saved_at[f] > known_to;
}
