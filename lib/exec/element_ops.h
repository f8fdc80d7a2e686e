/* element_ops.h: copies a box and converts its elements: byte order, conj and neg bits, dtype.
 *
 *     convert c = {.from = DTYPE_FLOAT32, .to = DTYPE_BFLOAT16};
 *     if (convert_is_copy(&c))
 *         strided_copy(&s, itemsize, dst, src);
 *     else
 *         overflows += convert_box(&c, &s, dst, src, scratch);
 */
#ifndef FSDPCK_EXEC_ELEMENT_OPS_H
#define FSDPCK_EXEC_ELEMENT_OPS_H

#include "exec/strided.h"
#include "state/dtype.h"

typedef struct convert {
    dtype from;
    dtype to;
    bool swap; /* source is big-endian */
    bool conj; /* imaginary halves are negated */
    bool neg;  /* elements are negated */
} convert;

/* Elements are converted in blocks that fit the L1 cache. */
#define CONVERT_BLOCK          2048u
#define CONVERT_SCRATCH_NBYTES (2u * 16u * CONVERT_BLOCK)

static inline bool convert_is_copy(const convert *c)
{
    return c->from == c->to && !c->swap && !c->conj && !c->neg;
}

/* Like strided_copy, with src items of `from` and dst items of `to`. `scratch` has
 * CONVERT_SCRATCH_NBYTES, aligned to 16. Returns casts that overflowed. */
uint64_t convert_box(const convert *c, const strided *s, uint8_t *dst, const uint8_t *src,
                     uint8_t *scratch);

/* Byte order, conj and neg of n dense elements, in place: afterwards they are plain `from`. */
void convert_resolve(const convert *c, uint8_t *elements, uint64_t n);

#endif
