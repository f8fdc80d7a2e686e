/* change_sums.h: the L2 norms of tensors that differ, and of their difference.
 *
 *     change_sums sums = {0};
 *     change_sums_add_elements(DTYPE_FLOAT32, a, b, n, &sums);     // part by part
 *     change_sums_add(&all, &sums);                                // of several threads
 *     change_sums_relative(&all)
 */
#ifndef FSDPCK_COMPARE_CHANGE_SUMS_H
#define FSDPCK_COMPARE_CHANGE_SUMS_H

#include "state/dtype.h"

typedef struct change_sums {
    uint64_t n;      /* elements in the sums */
    double aa;       /* of the squares of A */
    double distance; /* of those of B - A */
} change_sums;

/* Whether the size of a change means anything: floating-point and complex numbers. */
bool change_sums_has(dtype d);
/* n elements of each, in the host's byte order, any alignment. b: NULL if they are equal to those of a, byte
 * for byte. */
void change_sums_add_elements(dtype d, const uint8_t *a, const uint8_t *b, uint64_t n,
                              change_sums *sums);
/* Adds the sums of another part. */
void change_sums_add(change_sums *to, const change_sums *from);
/* The root, rounded to 6 digits: the order in which threads add is not that of the elements. */
double change_sums_norm(double squares);
/* The norm of the difference over that of A, likewise; NaN if A is zero or either is not finite. */
double change_sums_relative(const change_sums *sums);

#endif
