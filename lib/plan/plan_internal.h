/* plan_internal.h: internals of a plan, only for lib/plan. */
#ifndef FSDPCK_PLAN_PLAN_INTERNAL_H
#define FSDPCK_PLAN_PLAN_INTERNAL_H

#include "state/box_index.h"
#include "plan/plan.h"

/* Values of plan.index_of. */
#define INDEX_UNSEEN UINT32_MAX       /* no target tensor has used this source tensor yet */
#define INDEX_SCAN   (UINT32_MAX - 1) /* few chunks, no replicas: no index is kept */

static inline const target_constant *constant_at(const target *t, uint64_t i)
{
    return VEC_AT(&t->literals, target_constant, i);
}

static inline const target_deferred *deferred_at(const target *t, uint64_t i)
{
    return VEC_AT(&t->lates, target_deferred, i);
}

struct plan {
    const catalogue *from;
    const target *to;
    plan_options opt;
    budget *owner;
    uint32_t *index_of; /* source tensor -> position in indexes */
    uint64_t index_of_count;
    vec indexes;     /* box_index */
    vec partial;     /* uint8_t for each of indexes: whether the tensor has gaps */
    uint32_t *order; /* target chunks with bytes, by file, offset, chunk */
    uint64_t order_count;
    uint64_t order_capacity;
    uint64_t *file_order;    /* nfiles + 1: first of each file in order */
    uint64_t *file_constant; /* nfiles + 1: first of each file in the target's constant bytes */
    uint64_t *file_deferred; /* nfiles + 1: likewise in its deferred bytes */
    uint64_t *file_item;     /* nfiles + 1: first item of each file */
    uint64_t file_count;
    plan_totals totals;
};

/* Sorts chunks and constant bytes into files, counts items, checks the writer's locations. */
fsdpck_status plan_index_output(plan *p, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* NULL if the source tensor has few chunks, which are scanned. */
const box_index *plan_index_of(const plan *p, uint32_t source_tensor);

#endif
