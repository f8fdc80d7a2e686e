/* widen.h: elements of any numeric dtype as doubles.
 *
 *     widener w;
 *     if (widener_init(&w, DTYPE_BFLOAT16))
 *         widen(&w, bytes, w.parts * nelems, doubles);
 */
#ifndef FSDPCK_STATE_WIDEN_H
#define FSDPCK_STATE_WIDEN_H

#include "state/dtype.h"

typedef void (*widen_fn)(const uint8_t *bytes, uint32_t n, double *numbers);

typedef struct widener {
    dtype type;
    widen_fn fn;    /* NULL: by the table */
    unsigned parts; /* numbers per element: 2 if complex */
    size_t number_nbytes;
    double table[256]; /* of 8-bit floats: the value of each byte */
} widener;

/* False for dtypes that are no numbers, or that pack several into a byte. */
bool widener_init(widener *w, dtype d);

/* n numbers in the host's byte order, any alignment. */
void widen(const widener *w, const uint8_t *bytes, uint32_t n, double *numbers);

#endif
