/* dcp_safetensors_count.h: counts the shards of a tensor, for comparison between tensors. */
#ifndef FSDPCK_DCP_SAFETENSORS_COUNT_H
#define FSDPCK_DCP_SAFETENSORS_COUNT_H

#include "formats/safetensors/dcp_safetensors_evidence.h"

typedef struct shards_count {
    uint32_t root; /* of its ranks */
    uint32_t shards;
    uint32_t ndim; /* of a tensor in one shard; otherwise 0 */
} shards_count;

static inline shards_count shards_count_of(const shards_evidence *e, const shards_spread *t)
{
    return (shards_count){
        .root = shards_evidence_root(e, t->rank_number),
        .shards = t->shards,
        .ndim = t->shards > 1 ? 0 : t->ndim,
    };
}

/* By root, then shards; for qsort and bsearch. */
static inline int shards_count_compare(const void *a, const void *b)
{
    const shards_count *x = a, *y = b;
    ORDER_BY(x->root, y->root);
    ORDER_BY(x->shards, y->shards);
    return x->ndim < y->ndim ? -1 : x->ndim > y->ndim;
}

#endif
