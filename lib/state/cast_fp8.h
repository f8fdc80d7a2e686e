/* cast_fp8.h: the 8-bit floating types, described by a few numbers each. Inside lib/state only. */
#ifndef FSDPCK_STATE_CAST_FP8_H
#define FSDPCK_STATE_CAST_FP8_H

#include "state/dtype.h"

typedef struct fp8_format {
    unsigned mantissa_bits;
    unsigned bias;
    uint8_t end;    /* first code behind the largest finite value */
    uint8_t beyond; /* what out of range becomes: infinity, NaN, or (e4m3fn) the largest value */
    uint8_t nan;
    bool unsigned_zero; /* fnuz: no -0, one NaN at its place */
} fp8_format;

/* NULL for any other dtype; float8_e8m0fnu is apart: fp8_e8m0_... */
const fp8_format *fp8_format_of(dtype d);

/* Bits of a float32 to and from one byte. *out_of_range: it is larger than the largest value, also
 * after rounding; infinity is. */
uint8_t fp8_encode(const fp8_format *f, uint32_t bits, bool *out_of_range);
uint32_t fp8_decode(const fp8_format *f, uint8_t byte);
uint8_t fp8_e8m0_encode(uint32_t bits);
uint32_t fp8_e8m0_decode(uint8_t byte);

#endif
