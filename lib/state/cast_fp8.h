/* cast_fp8.h: the 8-bit floating types, each described by a few numbers. For lib/state only. */
#ifndef FSDPCK_STATE_CAST_FP8_H
#define FSDPCK_STATE_CAST_FP8_H

#include "state/dtype.h"

typedef struct fp8_format {
    unsigned mantissa_bits;
    unsigned bias;
    uint8_t end;    /* first code after the largest finite value */
    uint8_t beyond; /* result for out-of-range values: infinity, NaN, or (e4m3fn) the largest
                     * value */
    uint8_t nan;
    bool unsigned_zero; /* fnuz: no -0; its code is the only NaN */
} fp8_format;

/* NULL for any other dtype; float8_e8m0fnu has its own functions: fp8_e8m0_... */
const fp8_format *fp8_format_of(dtype d);

/* Converts the bits of a float32 to and from one byte. *out_of_range: the value exceeds the largest
 * value, also after rounding; so does infinity. */
uint8_t fp8_encode(const fp8_format *f, uint32_t bits, bool *out_of_range);
uint32_t fp8_decode(const fp8_format *f, uint8_t byte);
uint8_t fp8_e8m0_encode(uint32_t bits);
uint32_t fp8_e8m0_decode(uint8_t byte);

#endif
