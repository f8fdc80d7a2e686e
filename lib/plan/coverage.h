/* coverage.h: do the chunks of a tensor cover it exactly once?
 *
 *     struct coverage_report r;
 *     RETURN_IF(coverage_check(cat, tensor, &budget, &r, err));    // fails only with LIMIT
 *     if (!coverage_is_complete(&r))
 *         RETURN_IF(coverage_error(cat, tensor, &r, err));
 *
 * Chunks without elements do not count; chunks of the same box are replicas and count once. Whole
 * means: no two distinct boxes share an element, and their volumes add up to the tensor's (all
 * boxes lie inside, the catalogue has seen to that). 0-dim tensors follow the same rule, which
 * torch's own check skips: two chunks of one are replicas, none is a hole.
 */
#ifndef FSDPCK_PLAN_COVERAGE_H
#define FSDPCK_PLAN_COVERAGE_H

#include "plan/box_index.h"

struct coverage_report {
    uint64_t nelems;   /* of the tensor */
    uint64_t covered;  /* volumes of the distinct boxes, added; UINT64_MAX where they do not fit */
    uint64_t distinct; /* boxes that hold elements */
    uint64_t replicas; /* chunks that repeat one of them */
    uint64_t empty;    /* chunks without elements */
    bool overlap;      /* two distinct boxes share elements: chunks a < b */
    uint64_t overlap_a;
    uint64_t overlap_b;
    bool hole;         /* elements are missing. With an overlap it is only known to be so where
                          covered <= nelems */
    uint64_t missing;  /* how many, where there is no overlap */
    bool hole_located; /* the box below is wholly missing; it cannot be made larger */
    uint64_t hole_offsets[NDIM_MAX];
    uint64_t hole_sizes[NDIM_MAX];
};

/* LIMIT where the budget is used up, or where boxes are so entangled that telling whether they
 * overlap takes more than about 1,000 steps a chunk: no real layout comes near. */
fsdpck_status coverage_check(const catalogue *c, uint32_t tensor, budget *owner,
                             struct coverage_report *report, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same on an index that is built already. */
fsdpck_status coverage_check_index(const box_index *x, struct coverage_report *report,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

static inline bool coverage_is_complete(const struct coverage_report *r)
{
    return !r->overlap && !r->hole;
}

/* Elements of a box that the chunks hold. Only where there is no overlap. */
uint64_t coverage_count(const box_index *x, const uint64_t *offsets, const uint64_t *sizes);

/* Finds a box inside the given one that no chunk meets, as large as it can be. False where the
 * given box is covered, or where finding it takes too long. Only where there is no overlap. */
bool coverage_find_hole(const box_index *x, const uint64_t *offsets, const uint64_t *sizes,
                        uint64_t *hole_offsets, uint64_t *hole_sizes);

/* The report as an error: CHUNK-OVERLAP with both boxes and files, else CHUNK-GAP with the hole's box
 * and the number of missing elements. BADINPUT. */
fsdpck_status coverage_error(const catalogue *c, uint32_t tensor,
                             const struct coverage_report *report,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
