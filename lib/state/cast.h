/* cast.h: elements of one floating type as another, bit for bit what torch's .to() gives
 * (torch 2.15, CPU).
 *
 * Rounds to nearest, ties to even. Everything but float64 <-> float32 goes through float32, as in
 * torch (so float64 to bfloat16 is rounded twice). What is out of range becomes infinite; NaN in
 * the fnuz types; and the largest finite value in float8_e4m3fn, infinity too. float8_e8m0fnu has
 * neither sign nor zero. Integers and bool are never cast.
 *
 * NaN stays NaN. Which NaN is not settled in torch itself: it differs between the vector code, the
 * last elements of a tensor, and processors. Here it is what torch's vector code gives on
 * x86-64: 0xffff as bfloat16 (0x7fc0 where the source is narrower than float32), else quiet, with
 * the sign and the leading payload bits kept where the type has room for them.
 */
#ifndef FSDPCK_STATE_CAST_H
#define FSDPCK_STATE_CAST_H

#include "state/dtype.h"

/* Equal to plan_can_cast() for two different dtypes. */
bool cast_supported(dtype from, dtype to);

/* n elements, little-endian in both memories, which do not overlap and have any alignment. Returns
 * the number of finite elements that were out of range. Where cast_supported says no, nothing is
 * written. */
uint64_t cast_elements(dtype from, dtype to, void *dst, const void *src, uint64_t n);

#endif
