/* coverage.h: check that the chunks of a tensor cover it exactly once.
 *
 *     struct coverage_report r;
 *     RETURN_IF(coverage_check(cat, tensor, &budget, &r, err));    // fails only with LIMIT
 *     if (!coverage_is_complete(&r))
 *         RETURN_IF(coverage_error(cat, tensor, &r, err));
 *
 * Chunks without elements are ignored; chunks with the same box are replicas and count once. A
 * tensor is complete if no two distinct boxes share an element and their volumes add up to that of
 * the tensor (the catalogue guarantees that all boxes are inside). 0-dim tensors follow the same
 * rule, which torch's own check skips: two chunks of one are replicas, and none is a gap.
 */
#ifndef FSDPCK_PLAN_COVERAGE_H
#define FSDPCK_PLAN_COVERAGE_H

#include "state/box_index.h"

struct coverage_report {
    uint64_t nelems;   /* of the tensor */
    uint64_t covered;  /* total volume of the distinct boxes; UINT64_MAX on overflow */
    uint64_t distinct; /* boxes that hold elements */
    uint64_t replicas; /* chunks that repeat one of them */
    uint64_t empty;    /* chunks without elements */
    bool overlap;      /* two distinct boxes share elements: chunks a < b */
    uint64_t overlap_a;
    uint64_t overlap_b;
    bool hole;         /* elements are missing. With an overlap it is only certain if covered <=
                        * nelems */
    uint64_t missing;  /* number of missing elements, without an overlap */
    bool hole_located; /* the box below is completely missing; it cannot be made larger */
    uint64_t hole_offsets[NDIM_MAX];
    uint64_t hole_sizes[NDIM_MAX];
};

/* LIMIT if the budget is exhausted, or if the boxes are so irregular that the check for overlaps
 * takes more than about 1,000 steps per chunk; no real layout comes near that. */
fsdpck_status coverage_check(const catalogue *c, uint32_t tensor, budget *owner,
                             struct coverage_report *report, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same on an existing index. */
fsdpck_status coverage_check_index(const box_index *x, struct coverage_report *report,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

static inline bool coverage_is_complete(const struct coverage_report *r)
{
    return !r->overlap && !r->hole;
}

/* Number of elements of a box that the chunks hold. Only without overlap. */
uint64_t coverage_count(const box_index *x, const uint64_t *offsets, const uint64_t *sizes);

/* Finds a box inside the given one that intersects no chunk, as large as possible. False if the
 * given box is covered, or if the search takes too long. Only without overlap. */
bool coverage_find_hole(const box_index *x, const uint64_t *offsets, const uint64_t *sizes,
                        uint64_t *hole_offsets, uint64_t *hole_sizes);

/* The report as an error (BADINPUT): CHUNK-OVERLAP with both boxes and files, or CHUNK-GAP with the
 * box of the gap and the number of missing elements. */
fsdpck_status coverage_error(const catalogue *c, uint32_t tensor,
                             const struct coverage_report *report,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
