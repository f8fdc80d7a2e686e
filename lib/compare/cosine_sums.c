#include "compare/cosine_sums.h"

#include <math.h>
#include <string.h>

/* SCAN_CLONES comes from the build: see check/scan_elements.c. */

/* Numbers per step; as doubles, both sides fit the L1 cache. */
#define BLOCK 1024u
/* Numbers per step in floats, which need no copy. */
#define SPAN (16 * BLOCK)
/* Parallel sums that compilers vectorize, added in the same order for every vector width. Fused products are rounded
 * once, so machines without them may have other last bits. */
#define LANES 32u
/* Products that a lane adds in floats before their sum goes to a double. */
#define RUN 16u
/* The largest number whose square cannot overflow a sum. */
#define NUMBER_MAX 0x1p500
/* From here on, what products lose below the range of floats is nothing to the sum of a block. */
#define FLOAT_SUM_MIN 1e-20

typedef struct block {
    uint32_t n;
    double a[BLOCK], b[BLOCK];
} block;

typedef struct lane_sums {
    double ab[LANES], aa[LANES], bb[LANES];
} lane_sums;

static inline float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* As widen_half. NaN becomes infinite: the sum is finite in neither case. */
static inline float of_half(int16_t v)
{
    const uint32_t sign_and_magnitude = (uint32_t)(v * (1 << 13)) & 0x8fffe000u;
    const float number = of_bits(sign_and_magnitude) * 0x1p112f;
    return fabsf(number) < 0x1p16f ? number : INFINITY;
}

/* ---- LANES elements as numbers ---- */

static inline void load_doubles(const uint8_t *from, double *to)
{
    memcpy(to, from, LANES * sizeof *to);
}

static inline void load_floats(const uint8_t *from, float *to)
{
    memcpy(to, from, LANES * sizeof *to);
}

/* By pairs, which takes half the instructions: first the lower halves of all words, then the upper. */
static inline void load_brains(const uint8_t *from, float *to)
{
    uint32_t words[LANES / 2];
    memcpy(words, from, sizeof words);
    for (unsigned k = 0; k < LANES / 2; k++) {
        to[k] = of_bits(words[k] << 16);
        to[LANES / 2 + k] = of_bits(words[k] & 0xffff0000u);
    }
}

static inline void load_halves(const uint8_t *from, float *to)
{
    int16_t halves[LANES];
    memcpy(halves, from, sizeof halves);
    for (unsigned k = 0; k < LANES; k++)
        to[k] = of_half(halves[k]);
}

/* The sums of n elements of nbytes each, n a multiple of RUN * LANES; of products in `number`, of
 * runs in doubles. Written so that compilers vectorize it whole. */
#define SUM(name, nbytes, number, load)                                                           \
    SCAN_CLONES static void name(const uint8_t *a, const uint8_t *b, uint32_t n, lane_sums *sums) \
    {                                                                                             \
        double ab[LANES] = {0}, aa[LANES] = {0}, bb[LANES] = {0};                                 \
        for (size_t left = n / (RUN * LANES); left > 0; left--) {                                 \
            number xy[LANES] = {0}, xx[LANES] = {0}, yy[LANES] = {0};                             \
            for (unsigned i = 0; i < RUN; i++, a += LANES * (nbytes), b += LANES * (nbytes)) {    \
                number x[LANES], y[LANES];                                                        \
                load(a, x);                                                                       \
                load(b, y);                                                                       \
                for (unsigned k = 0; k < LANES; k++) {                                            \
                    xy[k] += x[k] * y[k];                                                         \
                    xx[k] += x[k] * x[k];                                                         \
                    yy[k] += y[k] * y[k];                                                         \
                }                                                                                 \
            }                                                                                     \
            for (unsigned k = 0; k < LANES; k++) {                                                \
                ab[k] += (double)xy[k];                                                           \
                aa[k] += (double)xx[k];                                                           \
                bb[k] += (double)yy[k];                                                           \
            }                                                                                     \
        }                                                                                         \
        memcpy(sums->ab, ab, sizeof ab);                                                          \
        memcpy(sums->aa, aa, sizeof aa);                                                          \
        memcpy(sums->bb, bb, sizeof bb);                                                          \
    }

SUM(sum_doubles, 8, double, load_doubles)
SUM(sum_floats, 4, float, load_floats)
SUM(sum_brains, 2, float, load_brains)
SUM(sum_halves, 2, float, load_halves)

typedef void (*sum_fn)(const uint8_t *a, const uint8_t *b, uint32_t n, lane_sums *sums);

static bool is_in_range(double number)
{
    return number >= -NUMBER_MAX && number <= NUMBER_MAX;
}

/* Counts them in `sums`. */
static void drop_out_of_range(block *x, cosine_sums *sums)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        const double a = x->a[i], b = x->b[i];
        if (!is_in_range(a) || !is_in_range(b)) {
            sums->spoilt += !isfinite(a) && isfinite(b);
            continue;
        }
        x->a[kept] = a;
        x->b[kept++] = b;
    }
    sums->not_finite += x->n - kept;
    x->n = kept;
}

SCAN_CLONES static void fold(double *lanes)
{
    for (unsigned k = 0; k < 16; k++)
        lanes[k] += lanes[k + 16];
    for (unsigned k = 0; k < 8; k++)
        lanes[k] += lanes[k + 8];
}

static double add_lanes_of(double *lanes)
{
    fold(lanes);
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

static cosine_sums add_lanes(lane_sums *lanes)
{
    return (cosine_sums){.ab = add_lanes_of(lanes->ab),
                         .aa = add_lanes_of(lanes->aa),
                         .bb = add_lanes_of(lanes->bb)};
}

static cosine_sums sum_block(block *x)
{
    lane_sums lanes;
    const uint32_t padded = (x->n + RUN * LANES - 1) / (RUN * LANES) * (RUN * LANES);
    for (uint32_t i = x->n; i < padded; i++)
        x->a[i] = x->b[i] = 0;
    sum_doubles((const uint8_t *)x->a, (const uint8_t *)x->b, padded, &lanes);
    return add_lanes(&lanes);
}

/* By way of doubles. */
static void add_block(const widener *of_a, const widener *of_b, const uint8_t *a, const uint8_t *b,
                      uint32_t n, cosine_sums *sums)
{
    block x;
    x.n = n;
    widen(of_a, a, n, x.a);
    widen(of_b, b, n, x.b);
    cosine_sums one = sum_block(&x);
    if (!isfinite(one.aa + one.bb)) {
        drop_out_of_range(&x, sums);
        one = sum_block(&x);
    }
    cosine_sums_add(sums, &one);
}

/* NULL: not in floats. */
static sum_fn sum_in_floats(const widener *of_a, const widener *of_b)
{
    if (of_a->type != of_b->type)
        return NULL;
    return of_a->type == DTYPE_BFLOAT16  ? sum_brains
           : of_a->type == DTYPE_FLOAT16 ? sum_halves
           : of_a->type == DTYPE_FLOAT32 ? sum_floats
                                         : NULL;
}

static bool fits_floats(const cosine_sums *s)
{
    return isfinite(s->aa + s->bb) && s->aa >= FLOAT_SUM_MIN && s->bb >= FLOAT_SUM_MIN;
}

/* Adds none and returns false unless all sums fit. */
static bool add_in_floats(sum_fn sum, const uint8_t *a, const uint8_t *b, uint32_t n,
                          cosine_sums *sums)
{
    lane_sums lanes;
    if (sum == NULL || n % (RUN * LANES) != 0)
        return false;
    sum(a, b, n, &lanes);
    const cosine_sums one = add_lanes(&lanes);
    if (!fits_floats(&one))
        return false;
    cosine_sums_add(sums, &one);
    return true;
}

void cosine_sums_add_elements(const widener *of_a, const widener *of_b, const uint8_t *a,
                              const uint8_t *b, uint64_t n, cosine_sums *sums)
{
    const sum_fn in_floats = sum_in_floats(of_a, of_b);
    for (uint64_t at = 0; at < n;) {
        const uint8_t *x = a + at * of_a->number_nbytes, *y = b + at * of_b->number_nbytes;
        const uint32_t some = n - at < BLOCK ? (uint32_t)(n - at) : BLOCK;
        if (n - at >= SPAN && add_in_floats(in_floats, x, y, SPAN, sums)) {
            at += SPAN;
            continue;
        }
        if (!add_in_floats(in_floats, x, y, some, sums))
            add_block(of_a, of_b, x, y, some, sums);
        at += some;
    }
}

void cosine_sums_add_difference(const widener *of_a, const widener *of_b, const uint8_t *a,
                                const uint8_t *b, uint64_t n, cosine_sums *sums)
{
    block x;
    for (uint64_t at = 0; at < n; at += BLOCK) {
        x.n = n - at < BLOCK ? (uint32_t)(n - at) : BLOCK;
        widen(of_a, a + at * of_a->number_nbytes, x.n, x.a);
        widen(of_b, b + at * of_b->number_nbytes, x.n, x.b);
        for (uint32_t i = 0; i < x.n; i++) {
            const double difference = x.a[i] - x.b[i];
            sums->difference += difference;
            sums->distance += difference * difference;
        }
    }
}

double cosine_sums_distance(const cosine_sums *s, double added, uint64_t n)
{
    return s->distance + 2 * added * s->difference + added * added * (double)n;
}

void cosine_sums_add(cosine_sums *to, const cosine_sums *from)
{
    to->ab += from->ab;
    to->aa += from->aa;
    to->bb += from->bb;
    to->difference += from->difference;
    to->distance += from->distance;
    to->not_finite += from->not_finite;
    to->spoilt += from->spoilt;
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
