#include "check/element_stats.h"

#include <math.h>
#include <string.h>

#include "state/widen.h"

/* SCAN_CLONES comes from the build: see scan_elements.c. */

/* Elements converted to doubles per step: they fit the L1 cache. */
#define BLOCK 1024u
/* Parallel sums that compilers vectorize. The order of additions is explicit and equal for every
 * vector width. */
#define LANES 8u

typedef struct block {
    uint32_t n;
    double x[BLOCK];
} block;

/* ---- sums ---- */

static double sum_lanes(const double *s)
{
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

SCAN_CLONES static double sum_block(const block *b, double *least, double *most)
{
    double s[LANES] = {0}, low[LANES], high[LANES];
    const uint32_t whole = b->n / LANES * LANES;
    for (unsigned k = 0; k < LANES; k++)
        low[k] = high[k] = b->x[0];
    for (uint32_t i = 0; i < whole; i += LANES)
        for (unsigned k = 0; k < LANES; k++) {
            const double x = b->x[i + k];
            s[k] += x;
            low[k] = x < low[k] ? x : low[k];
            high[k] = x > high[k] ? x : high[k];
        }
    for (uint32_t i = whole; i < b->n; i++) {
        const double x = b->x[i];
        s[0] += x;
        low[0] = x < low[0] ? x : low[0];
        high[0] = x > high[0] ? x : high[0];
    }
    *least = low[0];
    *most = high[0];
    for (unsigned k = 1; k < LANES; k++) {
        *least = low[k] < *least ? low[k] : *least;
        *most = high[k] > *most ? high[k] : *most;
    }
    return sum_lanes(s);
}

SCAN_CLONES static double sum_squares(const block *b, double mean)
{
    double s[LANES] = {0};
    const uint32_t whole = b->n / LANES * LANES;
    for (uint32_t i = 0; i < whole; i += LANES)
        for (unsigned k = 0; k < LANES; k++) {
            const double far = b->x[i + k] - mean;
            s[k] += far * far;
        }
    for (uint32_t i = whole; i < b->n; i++)
        s[0] += (b->x[i] - mean) * (b->x[i] - mean);
    return sum_lanes(s);
}

/* By the exponent field of a double: 0 is of zeros and the smallest. */
static uint64_t count_exponents(const block *b, uint64_t *exponents)
{
    uint64_t zeros = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint64_t bits;
        memcpy(&bits, &b->x[i], sizeof bits);
        exponents[bits >> 52 & 0x7ff]++;
        zeros += b->x[i] == 0;
    }
    exponents[0] -= zeros;
    return zeros;
}

static void drop_non_finite(block *b)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->n; i++)
        if (isfinite(b->x[i]))
            b->x[kept++] = b->x[i];
    b->n = kept;
}

static void take_block(block *b, element_stats *m, uint64_t *exponents)
{
    element_stats one = {0};
    double sum = sum_block(b, &one.least, &one.most);
    if (!isfinite(sum)) {
        drop_non_finite(b);
        if (b->n == 0)
            return;
        sum = sum_block(b, &one.least, &one.most);
    }
    one.numbers = b->n;
    one.mean = sum / b->n;
    one.squares = sum_squares(b, one.mean);
    one.zeros = count_exponents(b, exponents);
    element_stats_add(m, &one);
}

void element_stats_add_elements(dtype d, const uint8_t *bytes, uint64_t n, element_stats *m,
                                uint64_t *exponents)
{
    block b;
    widener w;
    if (!widener_init(&w, d))
        return;
    n *= w.parts;
    for (uint64_t at = 0; at < n; at += BLOCK) {
        b.n = n - at < BLOCK ? (uint32_t)(n - at) : BLOCK;
        widen(&w, bytes + at * w.number_nbytes, b.n, b.x);
        take_block(&b, m, exponents);
    }
}

void element_stats_add(element_stats *to, const element_stats *from)
{
    if (from->numbers == 0)
        return;
    if (to->numbers == 0) {
        *to = *from;
        return;
    }
    const double a = (double)to->numbers, b = (double)from->numbers;
    const double far = from->mean - to->mean;
    to->mean += far * (b / (a + b));
    to->squares += from->squares + far * far * (a * b / (a + b));
    to->numbers += from->numbers;
    to->zeros += from->zeros;
    to->least = from->least < to->least ? from->least : to->least;
    to->most = from->most > to->most ? from->most : to->most;
}

double element_number(dtype d, const uint8_t *element)
{
    widener w;
    double x[2] = {0, 0}; /* parts of a complex element */
    if (widener_init(&w, d))
        widen(&w, element, 1, x);
    return x[0];
}
