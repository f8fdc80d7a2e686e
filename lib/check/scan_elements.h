/* scan_elements.h: counts kinds of elements of a tensor while they are in the cache.
 *
 *     scan_counts s = {0};
 *     scan_add_elements(DTYPE_BFLOAT16, bytes, n, &s);      // part by part
 *     scan_add(&all, &s);
 */
#ifndef FSDPCK_CHECK_SCAN_ELEMENTS_H
#define FSDPCK_CHECK_SCAN_ELEMENTS_H

#include "state/dtype.h"

typedef struct scan_counts {
    uint64_t nelems; /* scanned; complex elements count as two */
    uint64_t nan, inf;
    uint64_t zeros;    /* and -0 */
    uint64_t negative; /* below 0; -inf too */
    bool constant;     /* all have the bits of the first */
    uint8_t first[16]; /* in the host's byte order */
} scan_counts;

/* Whether the dtype has NaN. */
bool scan_supported(dtype d);

/* n elements in the host's byte order (or one byte each), any alignment. Counts nothing for an
 * unsupported dtype. */
void scan_add_elements(dtype d, const uint8_t *bytes, uint64_t n, scan_counts *sums);
/* In any order. */
void scan_add(scan_counts *to, const scan_counts *from);

#endif
