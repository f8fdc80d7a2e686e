/* near_fault.h: why a tensor is far from the one of its name, where a second comparison proves it.
 *
 *     near_fault fault;
 *     RETURN_IF(near_fault_find(&n, pair, &fault, err));     // after nearness_measure
 *     ... fault.kind, fault.tensor ...
 *
 * Reads at most 16 MiB of each tensor.
 */
#ifndef FSDPCK_COMPARE_NEAR_FAULT_H
#define FSDPCK_COMPARE_NEAR_FAULT_H

#include "compare/nearness.h"

/* A score (cosine_sums_score) from here on is one of a tensor that continues another. */
#define NEAR_SCORE_MIN 0.5

typedef enum near_fault_kind {
    NEAR_FAULT_NONE,
    NEAR_FAULT_TENSOR, /* the values are those of another tensor of the same role or layer */
    NEAR_FAULT_ROPE    /* the rows of each head are in the other of the two orders of RoPE */
} near_fault_kind;

typedef struct near_fault {
    near_fault_kind kind;
    uint32_t tensor;    /* of the target catalogue of b */
    uint64_t head_rows; /* rows of a head */
    double cosine;      /* with the cause undone, of the elements that were read */
} near_fault;

fsdpck_status near_fault_find(nearness *n, size_t pair, near_fault *fault,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
