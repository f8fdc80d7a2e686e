/* cosine_sums.h: the sums that the cosine of two tensors is made of.
 *
 *     cosine_sums sums = {0};
 *     cosine_sums_add_elements(&of_a, &of_b, a, b, n, &sums);      // part by part
 *     cosine_sums_add(&all, &sums);                            // of several threads
 *     cosine_sums_cosine(&all)
 */
#ifndef FSDPCK_COMPARE_COSINE_SUMS_H
#define FSDPCK_COMPARE_COSINE_SUMS_H

#include "state/widen.h"

typedef struct cosine_sums {
    double ab, aa, bb;   /* of products, in doubles */
    double difference;   /* of A - B, only if asked */
    double distance;     /* of its squares, likewise */
    uint64_t not_finite; /* elements left out: on either side NaN, infinite or above 2^500 */
    uint64_t spoilt;     /* of these: NaN or infinite in A, and finite in B */
} cosine_sums;

/* From -1 to 1; NaN if either side is zero. */
double cosine_sums_cosine(const cosine_sums *sums);
/* How much of B is in A: 1 if A is B, or B plus anything independent of it. NaN if B is zero. */
double cosine_sums_projection(const cosine_sums *sums);
/* The greater of both: near 1 as long as A continues B, however far; near 0 if A is something else. */
double cosine_sums_score(const cosine_sums *sums);

/* n elements of each, none complex, in the host's byte order, any alignment. */
void cosine_sums_add_elements(const widener *of_a, const widener *of_b, const uint8_t *a,
                              const uint8_t *b, uint64_t n, cosine_sums *sums);

/* Adds the same elements to the difference and the distance. */
void cosine_sums_add_difference(const widener *of_a, const widener *of_b, const uint8_t *a,
                                const uint8_t *b, uint64_t n, cosine_sums *sums);

/* The sum of the squares of A + `added` - B, of `n` elements. Requires the difference. */
double cosine_sums_distance(const cosine_sums *sums, double added, uint64_t n);

/* Adds the sums of another part. */
void cosine_sums_add(cosine_sums *to, const cosine_sums *from);

#endif
