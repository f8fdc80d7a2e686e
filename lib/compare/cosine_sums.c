#include "compare/cosine_sums.h"

#include <math.h>

/* SCAN_CLONES comes from the build: see check/scan_elements.c. */

/* Numbers converted to doubles per step: both sides fit the L1 cache. */
#define BLOCK 1024u
/* Parallel sums that compilers vectorize, added in the same order for every vector width. */
#define LANES 8u
/* The largest number whose square cannot overflow a sum. */
#define NUMBER_MAX 0x1p500

typedef struct block {
    uint32_t n;
    double a[BLOCK], b[BLOCK];
} block;

static double sum_lanes(const double *s)
{
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

SCAN_CLONES static void sum_block(const block *x, cosine_sums *sums)
{
    double ab[LANES] = {0}, aa[LANES] = {0}, bb[LANES] = {0};
    const uint32_t whole = x->n / LANES * LANES;
    for (uint32_t i = 0; i < whole; i += LANES)
        for (unsigned k = 0; k < LANES; k++) {
            const double a = x->a[i + k], b = x->b[i + k];
            ab[k] += a * b;
            aa[k] += a * a;
            bb[k] += b * b;
        }
    for (uint32_t i = whole; i < x->n; i++) {
        ab[0] += x->a[i] * x->b[i];
        aa[0] += x->a[i] * x->a[i];
        bb[0] += x->b[i] * x->b[i];
    }
    sums->ab = sum_lanes(ab);
    sums->aa = sum_lanes(aa);
    sums->bb = sum_lanes(bb);
}

static bool is_in_range(double number)
{
    return number >= -NUMBER_MAX && number <= NUMBER_MAX;
}

static uint32_t drop_out_of_range(block *x)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        const double a = x->a[i], b = x->b[i];
        if (!is_in_range(a) || !is_in_range(b))
            continue;
        x->a[kept] = a;
        x->b[kept++] = b;
    }
    const uint32_t dropped = x->n - kept;
    x->n = kept;
    return dropped;
}

static void add_block(block *x, cosine_sums *sums)
{
    cosine_sums one = {0};
    uint32_t dropped = 0;
    sum_block(x, &one);
    if (!isfinite(one.aa + one.bb)) {
        dropped = drop_out_of_range(x);
        sum_block(x, &one);
    }
    one.not_finite = dropped;
    cosine_sums_add(sums, &one);
}

void cosine_sums_add_elements(const widener *of_a, const widener *of_b, const uint8_t *a,
                              const uint8_t *b, uint64_t n, cosine_sums *sums)
{
    block x;
    for (uint64_t at = 0; at < n; at += BLOCK) {
        x.n = n - at < BLOCK ? (uint32_t)(n - at) : BLOCK;
        widen(of_a, a + at * of_a->number_nbytes, x.n, x.a);
        widen(of_b, b + at * of_b->number_nbytes, x.n, x.b);
        add_block(&x, sums);
    }
}

void cosine_sums_add(cosine_sums *to, const cosine_sums *from)
{
    to->ab += from->ab;
    to->aa += from->aa;
    to->bb += from->bb;
    to->not_finite += from->not_finite;
}

double cosine_sums_cosine(const cosine_sums *s)
{
    const double norms = sqrt(s->aa) * sqrt(s->bb);
    const double cosine = norms > 0 ? s->ab / norms : (double)NAN;
    return cosine > 1 ? 1 : cosine < -1 ? -1 : cosine;
}

double cosine_sums_projection(const cosine_sums *s)
{
    return s->bb > 0 ? s->ab / s->bb : (double)NAN;
}

double cosine_sums_score(const cosine_sums *s)
{
    const double cosine = cosine_sums_cosine(s), projection = cosine_sums_projection(s);
    return cosine > projection ? cosine : projection;
}
