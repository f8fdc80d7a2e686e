/* cast.h: conversion between floating types, bit for bit as torch's .to() (torch 2.15, CPU).
 *
 * Rounds to nearest, ties to even. All conversions except float64 <-> float32 go through float32,
 * as in torch (so float64 to bfloat16 is rounded twice). Out-of-range values become infinite, NaN
 * in the fnuz types, and the largest finite value in float8_e4m3fn (also infinity). float8_e8m0fnu
 * has neither sign nor zero. Integers and bool are never cast.
 *
 * NaN remains NaN. torch itself does not define which NaN: it differs between vector code, the last
 * elements of a tensor, and processors. Here it is the result of torch's vector code on x86-64:
 * 0xffff as bfloat16 (0x7fc0 if the source is narrower than float32), otherwise quiet, with the
 * sign and as many leading payload bits as the type can store.
 */
#ifndef FSDPCK_STATE_CAST_H
#define FSDPCK_STATE_CAST_H

#include "state/dtype.h"

/* Two different dtypes. */
bool cast_supported(dtype from, dtype to);

/* n elements, little-endian in both memories, which do not overlap and have any alignment. Returns
 * the number of finite elements that were out of range. Writes nothing if cast_supported is false.
 */
uint64_t cast_elements(dtype from, dtype to, void *dst, const void *src, uint64_t n);

#endif
