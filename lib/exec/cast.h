/* cast.h: elements of one floating type as another, bit for bit what torch's .to() gives (torch 2.15, CPU).
 *
 * Rounds to nearest, ties to even. What goes to a type narrower than float32 goes through float32
 * first, as in torch (so float64 is rounded twice). The dtypes are those of plan_can_cast(); integers
 * and bool are never cast.
 */
#ifndef FSDPCK_EXEC_CAST_H
#define FSDPCK_EXEC_CAST_H

#include "state/dtype.h"

bool cast_supported(dtype from, dtype to);

/* n elements, little-endian in both memories, which do not overlap and have any alignment. Returns the number of
 * finite elements that did not stay finite: they became infinite, or NaN where `to` has no
 * infinity. */
uint64_t cast_elements(dtype from, dtype to, void *dst, const void *src, uint64_t n);

#endif
