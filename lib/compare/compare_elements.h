/* compare_elements.h: compares the elements of two tensors of one dtype.
 *
 *     compare_stats stats = {0};
 *     const compare_rule rule = {.atol = 0, .rtol = 1e-5};
 *     compare_elements(DTYPE_FLOAT32, &rule, a, b, n, first, &stats);     // part by part
 *     compare_add(&all, &stats);                                          // of several threads
 *
 * Without tolerances, elements are equal if their bytes are. With tolerances, floating elements are
 * equal if |a - b| <= atol + rtol * |b| (torch.allclose), both are NaN, or both are the same
 * infinity. Complex elements are compared by halves. Integers are always compared exactly.
 */
#ifndef FSDPCK_COMPARE_COMPARE_ELEMENTS_H
#define FSDPCK_COMPARE_COMPARE_ELEMENTS_H

#include "state/dtype.h"

typedef struct compare_rule {
    double atol, rtol;
} compare_rule;

typedef struct compare_stats {
    uint64_t differing; /* elements */
    uint64_t first;     /* the lowest index of a difference, if any */
    uint8_t first_a[16], first_b[16];
    /* Over elements that differ and are finite on both sides; complex elements by halves. */
    double largest;
    uint64_t not_numbers; /* NaN or infinite on one side */
    uint64_t nans;        /* of these: NaN on one side */
} compare_stats;

/* n elements, little-endian, any alignment; `first` is the index of the first of them. Returns whether any bytes
 * differ: with tolerances, not those of a difference alone. */
bool compare_elements(dtype d, const compare_rule *rule, const uint8_t *a, const uint8_t *b,
                      uint64_t n, uint64_t first, compare_stats *stats);

/* Adds the statistics of another part. */
void compare_add(compare_stats *to, const compare_stats *from);

/* Text of an element: "0.25", "-3", "true", "1+2j", or hexadecimal digits. Returns text. */
char *compare_print(dtype d, const uint8_t *element, char *text, size_t capacity);

#endif
