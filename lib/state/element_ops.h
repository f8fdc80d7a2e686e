/* element_ops.h: copies a box and converts its elements: byte order, conj and neg bits, an added constant,
 * dtype.
 *
 *     element_ops c = {.from = DTYPE_FLOAT32, .to = DTYPE_BFLOAT16};
 *     if (element_ops_is_copy(&c))
 *         strided_copy(&s, itemsize, dst, src);
 *     else
 *         overflows += element_ops_box(&c, &s, dst, src, scratch);
 */
#ifndef FSDPCK_STATE_ELEMENT_OPS_H
#define FSDPCK_STATE_ELEMENT_OPS_H

#include "state/strided.h"
#include "state/dtype.h"

typedef struct element_ops {
    dtype from;
    dtype to;
    bool swap; /* source is big-endian */
    bool conj; /* imaginary halves are negated */
    bool neg;  /* elements are negated */
    int8_t
        add; /* 1, -1: added to each element; 0: nothing. Of float64, float32, float16, bfloat16 */
} element_ops;

/* Elements are converted in blocks that fit the L1 cache. */
#define ELEMENT_OPS_BLOCK          2048u
#define ELEMENT_OPS_SCRATCH_NBYTES (2u * 16u * ELEMENT_OPS_BLOCK)

static inline bool element_ops_is_copy(const element_ops *c)
{
    return c->from == c->to && !c->swap && !c->conj && !c->neg && c->add == 0;
}

/* Like strided_copy, with src items of `from` and dst items of `to`. `scratch` has
 * ELEMENT_OPS_SCRATCH_NBYTES, aligned to 16. Returns casts that overflowed. */
uint64_t element_ops_box(const element_ops *c, const strided *s, uint8_t *dst, const uint8_t *src,
                         uint8_t *scratch);

/* Byte order, conj, neg and add of n dense elements, in place: afterwards they are plain `from`. As torch
 * does, float16 and bfloat16 are widened to float32, and the sum is rounded. */
void element_ops_resolve(const element_ops *c, uint8_t *elements, uint64_t n);

#endif
