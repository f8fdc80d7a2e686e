#include "compare/change_sums.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "state/widen.h"

/* SCAN_CLONES comes from the build: see check/scan_elements.c. */

/* Numbers per step; as doubles, both sides fit the L1 cache. */
#define BLOCK 1024u
/* Parallel sums, which compilers vectorize. */
#define LANES 16u

bool change_sums_has(dtype d)
{
    widener w;
    const dtype_class kind = (dtype_class)dtype_get(d)->kind;
    return (kind == DTYPE_IS_FLOAT || kind == DTYPE_IS_COMPLEX) && widener_init(&w, d);
}

/* n is a multiple of LANES. */
SCAN_CLONES static void add_block(const double *a, const double *b, uint32_t n, change_sums *sums)
{
    double aa[LANES] = {0}, distance[LANES] = {0};
    for (uint32_t i = 0; i < n; i += LANES)
        for (unsigned k = 0; k < LANES; k++) {
            const double apart = b[i + k] - a[i + k];
            aa[k] += a[i + k] * a[i + k];
            distance[k] += apart * apart;
        }
    for (unsigned k = 0; k < LANES; k++) {
        sums->aa += aa[k];
        sums->distance += distance[k];
    }
}

/* Likewise, of two sides that are equal. */
SCAN_CLONES static void add_equal_block(const double *a, uint32_t n, change_sums *sums)
{
    double aa[LANES] = {0};
    for (uint32_t i = 0; i < n; i += LANES)
        for (unsigned k = 0; k < LANES; k++)
            aa[k] += a[i + k] * a[i + k];
    for (unsigned k = 0; k < LANES; k++)
        sums->aa += aa[k];
}

void change_sums_add_elements(dtype d, const uint8_t *a, const uint8_t *b, uint64_t n,
                              change_sums *sums)
{
    double x[BLOCK], y[BLOCK];
    widener w;
    if (!change_sums_has(d) || !widener_init(&w, d))
        return;
    const uint64_t numbers = n * w.parts;
    for (uint64_t at = 0; at < numbers; at += BLOCK) {
        const uint32_t some = numbers - at < BLOCK ? (uint32_t)(numbers - at) : BLOCK;
        uint32_t padded = some;
        widen(&w, a + at * w.number_nbytes, some, x);
        for (; padded % LANES != 0; padded++)
            x[padded] = y[padded] = 0;
        if (b == NULL) {
            add_equal_block(x, padded, sums);
            continue;
        }
        widen(&w, b + at * w.number_nbytes, some, y);
        add_block(x, y, padded, sums);
    }
    sums->n += n;
}

void change_sums_add(change_sums *to, const change_sums *from)
{
    to->n += from->n;
    to->aa += from->aa;
    to->distance += from->distance;
}

double change_sums_norm(double squares)
{
    char text[40];
    snprintf(text, sizeof text, "%.6g", sqrt(squares));
    return strtod(text, NULL);
}

double change_sums_relative(const change_sums *s)
{
    if (!(s->aa > 0) || !isfinite(s->aa) || !isfinite(s->distance))
        return (double)NAN;
    return change_sums_norm(s->distance / s->aa);
}
