/* coefficients.h: the factors of the inputs of an average, oldest input first.
 *
 *     double c[COUNT];
 *     average_coefficients_equal(c, COUNT);                                  // 1/COUNT each
 *     RETURN_IF(average_coefficients_schedule("minus-sqrt", c, COUNT, err)); // or by a schedule
 *     RETURN_IF(average_coefficients_normalize(c, COUNT, err));              // divides by their sum
 *
 * Schedules: `linear` and `minus-sqrt` are those of Megatron-LM's tools/checkpoint/weighted_merge.py: they
 * replace the decay of a learning rate by a factor f, with f(x) = 1 - x or 1 - sqrt(x). d_i = f(i/n);
 * the last coefficient is d_(n-1), number k is d_k - d_(k+1), the first is 1 minus all others. `ema=B`
 * is the exponential moving average e = B e + (1 - B) x that begins with the first input.
 */
#ifndef FSDPCK_AVERAGE_COEFFICIENTS_H
#define FSDPCK_AVERAGE_COEFFICIENTS_H

#include <stddef.h>

#include "base/status.h"

void average_coefficients_equal(double *c, size_t count);
/* USAGE for an unknown schedule. */
fsdpck_status average_coefficients_schedule(const char *schedule, double *c, size_t count,
                                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* USAGE if the sum is zero. */
fsdpck_status average_coefficients_normalize(double *c, size_t count,
                                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
