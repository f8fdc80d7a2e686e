/* nearness.h: the cosine of each floating-point tensor of one checkpoint to that of the same name and
 * shape in another, in one pass over both.
 *
 *     nearness n;
 *     nearness_init(&n, a, b, &work);                    // work: threads and memory
 *     st = nearness_measure(&n, err);                    // collective in the group of a
 *     ... n.found ...
 *     nearness_release(&n);                              // also after a failure
 *
 * Where dtypes differ, both sides are read as float32. Vectors that are not streamed have the difference.
 */
#ifndef FSDPCK_COMPARE_NEARNESS_H
#define FSDPCK_COMPARE_NEARNESS_H

#include "compare/cosine_sums.h"
#include "compare/tensor_pairs.h"

/* A tensor that both have with one shape. */
typedef struct near_tensor {
    uint32_t tensor;  /* of the source catalogue of a */
    bool is_streamed; /* not read by ranges */
    bool is_unread;   /* no sums */
    cosine_sums sums;
} near_tensor;

typedef struct nearness {
    run a, b;
    tensor_pairs common;
    vec found; /* near_tensor, parallel to common.list */
    uint64_t
        other_tensors; /* of both with one shape, but integers, packed, or 8-bit floats of one side */
    pthread_mutex_t lock; /* guards the sums */
} nearness;

void nearness_init(nearness *n, fsdpck_checkpoint *a, fsdpck_checkpoint *b,
                   const fsdpck_work_options *work);
/* Reads each common tensor of both once. BADINPUT and UNSUPPORTED: one of them cannot be read. */
fsdpck_status nearness_measure(nearness *n, fsdpck_error *err) FSDPCK_MUST_CHECK;
void nearness_release(nearness *n);

#endif
