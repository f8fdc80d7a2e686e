/* moments.h: mean, variance, extremes and exponents of elements, made while they are in the cache.
 *
 *     moments m = {0};
 *     moments_add_elements(DTYPE_BFLOAT16, bytes, n, &m, exponents);       // part by part
 *     moments_add(&all, &m);                                           // in order
 *
 * Of finite numbers alone; of complex elements both parts count. Parts that are cut alike and added
 * in one order give the same bits, whoever made them.
 */
#ifndef FSDPCK_CHECK_MOMENTS_H
#define FSDPCK_CHECK_MOMENTS_H

#include "state/dtype.h"

typedef struct moments {
    uint64_t numbers; /* finite ones */
    uint64_t zeros;
    double mean, squares; /* sum of the squared distances from the mean */
    double least, most;
} moments;

/* Counts by the exponent e of numbers 1.x * 2^e, from EXPONENT_MIN (all that are smaller are there
 * too) on. Zeros have none. */
#define EXPONENT_MIN (-1023)
#define EXPONENTS    2047u

bool moments_supported(dtype d);

/* n elements of the host's byte order, any alignment; adds to `exponents`, EXPONENTS of them. */
void moments_add_elements(dtype d, const uint8_t *bytes, uint64_t n, moments *m,
                          uint64_t *exponents);

/* `from` comes behind what `to` has. Order matters in the last bits of mean and squares. */
void moments_add(moments *to, const moments *from);

#endif
