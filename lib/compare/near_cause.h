/* near_cause.h: why a tensor is far from the one of its name, where a second comparison proves it.
 *
 *     near_cause cause;
 *     RETURN_IF(near_cause_find(&n, pair, &cause, err));     // after nearness_measure
 *     if (cause.kind == NEAR_CAUSE_TENSOR)
 *         ... cause.tensor ...
 *
 * Reads at most 16 MiB of each tensor.
 */
#ifndef FSDPCK_COMPARE_NEAR_CAUSE_H
#define FSDPCK_COMPARE_NEAR_CAUSE_H

#include "compare/nearness.h"

/* A score (cosine_sums_score) from here on is one of a tensor that continues another. */
#define NEAR_SCORE_MIN 0.5

typedef enum near_cause_kind {
    NEAR_CAUSE_NONE,
    NEAR_CAUSE_TENSOR, /* the values are those of another tensor of the same role or layer */
    NEAR_CAUSE_ROPE    /* the rows of each head are in the other of the two orders of RoPE */
} near_cause_kind;

typedef struct near_cause {
    near_cause_kind kind;
    uint32_t tensor;    /* of the target catalogue of b */
    uint64_t head_rows; /* rows of a head */
    double cosine;      /* with the cause undone, of the elements that were read */
} near_cause;

fsdpck_status near_cause_find(nearness *n, size_t pair, near_cause *cause,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
