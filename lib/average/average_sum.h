/* average_sum.h: the arithmetic of averages, on blocks of elements that fit the cache.
 *
 *     average_sum s;
 *     RETURN_IF(average_sum_init(&s, &rule, inputs, type, err));
 *     if (!average_sum_block(&s, from, to, n, &culprit))     // n <= AVERAGE_BLOCK
 *         ... input number `culprit` is not finite, or the result for `inputs` ...
 *     s.farthest[i]                                          // of all blocks
 *     average_sum_release(&s);
 *
 * Products and sums are rounded separately: no fused operations.
 */
#ifndef FSDPCK_AVERAGE_AVERAGE_SUM_H
#define FSDPCK_AVERAGE_AVERAGE_SUM_H

#include "average/average.h"

/* Numbers at a time. */
#define AVERAGE_BLOCK 1024u

typedef struct average_sum {
    const average_rule *rule;
    size_t inputs; /* with a base */
    dtype type;    /* of numbers: half of an element of a complex dtype */
    bool wide;     /* float64 */
    double slerp[2];
    double *farthest; /* by input, without a base */
    void *values;     /* AVERAGE_BLOCK of each input, then the sum, then the result */
    const void **x; /* by input and for the result: its numbers, there or in the caller's memory */
    float *narrow;  /* AVERAGE_BLOCK */
} average_sum;

/* The dtype of the numbers of a tensor's elements; DTYPE_NONE if it is not averaged. */
dtype average_number_type(dtype element);
fsdpck_status average_sum_init(average_sum *s, const average_rule *rule, size_t inputs,
                               dtype element, fsdpck_error *err) FSDPCK_MUST_CHECK;
void average_sum_release(average_sum *s);
/* from[i]: n numbers of input i, little-endian; to: n numbers of the result. */
bool average_sum_block(average_sum *s, const uint8_t *const *from, uint8_t *to, uint64_t n,
                       size_t *culprit);
/* Adds to sums[0..2]: a * a, a * b and b * b of n numbers of two inputs in float64, in an order that depends on n
 * alone. */
bool average_sum_products(average_sum *s, const uint8_t *const *from, uint64_t n, double *sums,
                          size_t *culprit);

#endif
