/* element_stats.h: mean, variance, extremes and exponents of elements, computed while they are in the
 * cache.
 *
 *     element_stats m = {0};
 *     element_stats_add_elements(DTYPE_BFLOAT16, bytes, n, &m, exponents);       // part by part
 *     element_stats_add(&all, &m);                                           // in order
 *
 * Only finite numbers count; both parts of complex elements count. Equal parts added in the same
 * order give the same bits on any thread.
 */
#ifndef FSDPCK_CHECK_MOMENTS_H
#define FSDPCK_CHECK_MOMENTS_H

#include "state/dtype.h"

typedef struct element_stats {
    uint64_t numbers; /* finite ones */
    uint64_t zeros;
    double mean, squares; /* sum of squared distances from the mean */
    double least, most;
} element_stats;

/* Counts by the exponent e of numbers 1.x * 2^e, from EXPONENT_MIN on, which includes all smaller
 * ones. Zeros are not counted. */
#define EXPONENT_MIN (-1023)
#define EXPONENTS    2047u

/* n elements in the host's byte order, any alignment; adds to `exponents`, EXPONENTS of them. */
void element_stats_add_elements(dtype d, const uint8_t *bytes, uint64_t n, element_stats *m,
                                uint64_t *exponents);

/* Adds `from` after `to`. The order affects the last bits of mean and squares. */
void element_stats_add(element_stats *to, const element_stats *from);

/* One element of a floating dtype. */
double element_number(dtype d, const uint8_t *element);

#endif
