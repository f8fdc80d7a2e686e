#include "average/average_sum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "state/cast.h"

#ifndef AVERAGE_CLONES
#define AVERAGE_CLONES
#endif

#define F32_INFINITY UINT32_C(0x7F800000)
#define F64_INFINITY UINT64_C(0x7FF0000000000000)

dtype average_number_type(dtype element)
{
    switch (element) {
    case DTYPE_FLOAT64:
    case DTYPE_COMPLEX128:
        return DTYPE_FLOAT64;
    case DTYPE_FLOAT32:
    case DTYPE_COMPLEX64:
        return DTYPE_FLOAT32;
    case DTYPE_FLOAT16:
    case DTYPE_COMPLEX32:
        return DTYPE_FLOAT16;
    case DTYPE_BFLOAT16:
    case DTYPE_BCOMPLEX32:
        return DTYPE_BFLOAT16;
    default:
        return DTYPE_NONE;
    }
}

fsdpck_status average_sum_init(average_sum *s, const average_rule *rule, size_t inputs,
                               dtype element, fsdpck_error *err)
{
    *s = (average_sum){.rule = rule, .inputs = inputs, .type = average_number_type(element)};
    s->wide = rule->wide || rule->slerp || s->type == DTYPE_FLOAT64;
    s->farthest = calloc(inputs, sizeof *s->farthest);
    s->values = malloc((inputs + 2) * AVERAGE_BLOCK * sizeof(double));
    s->narrow = malloc(AVERAGE_BLOCK * sizeof *s->narrow);
    s->x = calloc(inputs + 2, sizeof *s->x);
    if (s->farthest != NULL && s->values != NULL && s->narrow != NULL && s->x != NULL)
        return FSDPCK_OK;
    average_sum_release(s);
    return error_set_nomem(err, (inputs + 2) * AVERAGE_BLOCK * sizeof(double));
}

void average_sum_release(average_sum *s)
{
    free(s->farthest);
    free(s->values);
    free(s->narrow);
    free(s->x);
    *s = (average_sum){0};
}

/* --- loops over numbers --- */

/* For the float type F with integers U: `infinity` has all exponent bits. The magnitude of a float is
 * ordered as its bits, so the largest one is that of the largest integer. */
#define AVERAGE_LOOPS(F, U, SUFFIX, infinity)                                                      \
    AVERAGE_CLONES static bool any_special_##SUFFIX(const F *x, uint64_t n)                        \
    {                                                                                              \
        U any = 0;                                                                                 \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            U bits;                                                                                \
            memcpy(&bits, &x[i], sizeof bits);                                                     \
            any |= (U)((bits & (infinity)) == (infinity));                                         \
        }                                                                                          \
        return any != 0;                                                                           \
    }                                                                                              \
    AVERAGE_CLONES static void add_##SUFFIX(F *restrict acc, const F *restrict x, F c, uint64_t n) \
    {                                                                                              \
        for (uint64_t i = 0; i < n; i++)                                                           \
            acc[i] = acc[i] + c * x[i];                                                            \
    }                                                                                              \
    AVERAGE_CLONES static void add_delta_##SUFFIX(F *restrict acc, const F *restrict x,            \
                                                  const F *restrict base, F c, uint64_t n)         \
    {                                                                                              \
        for (uint64_t i = 0; i < n; i++)                                                           \
            acc[i] = acc[i] + c * (x[i] - base[i]);                                                \
    }                                                                                              \
    AVERAGE_CLONES static void add_to_base_##SUFFIX(F *restrict acc, const F *restrict base,       \
                                                    F scale, uint64_t n)                           \
    {                                                                                              \
        for (uint64_t i = 0; i < n; i++)                                                           \
            acc[i] = base[i] + scale * acc[i];                                                     \
    }                                                                                              \
    AVERAGE_CLONES static F farthest_##SUFFIX(const F *restrict x, const F *restrict result,       \
                                              uint64_t n)                                          \
    {                                                                                              \
        U most = 0;                                                                                \
        F far;                                                                                     \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            const F difference = x[i] - result[i];                                                 \
            U bits;                                                                                \
            memcpy(&bits, &difference, sizeof bits);                                               \
            bits &= (U) ~(U)0 >> 1;                                                                \
            most = bits > most ? bits : most;                                                      \
        }                                                                                          \
        memcpy(&far, &most, sizeof far);                                                           \
        return far;                                                                                \
    }

AVERAGE_LOOPS(float, uint32_t, f32, F32_INFINITY)
AVERAGE_LOOPS(double, uint64_t, f64, F64_INFINITY)

/* Adds the sums of a * a, a * b and b * b. Sums of every eighth product round less often than one sum. */
AVERAGE_CLONES static void add_products(double *sums, const double *restrict a,
                                        const double *restrict b, uint64_t n)
{
    enum { LANES = 8 };
    double lanes[3][LANES] = {{0}};
    uint64_t i = 0;
    for (; n - i >= LANES; i += LANES)
        for (int k = 0; k < LANES; k++) {
            lanes[0][k] += a[i + k] * a[i + k];
            lanes[1][k] += a[i + k] * b[i + k];
            lanes[2][k] += b[i + k] * b[i + k];
        }
    for (int k = 0; i < n; i++, k++) {
        lanes[0][k] += a[i] * a[i];
        lanes[1][k] += a[i] * b[i];
        lanes[2][k] += b[i] * b[i];
    }
    for (int m = 0; m < 3; m++) {
        for (int half = LANES / 2; half > 0; half /= 2)
            for (int k = 0; k < half; k++)
                lanes[m][k] += lanes[m][k + half];
        sums[m] += lanes[m][0];
    }
}

AVERAGE_CLONES static void widen(double *restrict to, const float *restrict from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = from[i];
}

/* Without copies, unlike cast_elements. */
AVERAGE_CLONES static void load_bf16(float *restrict to, const uint8_t *restrict from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, sizeof half);
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

/* Of numbers that are finite. */
AVERAGE_CLONES static void store_bf16(uint8_t *restrict to, const float *restrict from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        const uint16_t half = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
        memcpy(to + 2 * i, &half, sizeof half);
    }
}

/* Rounds to the nearest float, or, if the number is inexact, to the neighbor whose last bit is set: a
 * second rounding to 16 bits then gives the same as one rounding. */
static void narrow(float *to, const double *from, uint64_t n, bool to_odd)
{
    for (uint64_t i = 0; i < n; i++) {
        to[i] = (float)from[i];
        if (!to_odd || (double)to[i] == from[i])
            continue;
        uint32_t bits;
        memcpy(&bits, &to[i], sizeof bits);
        bits -= fabs((double)to[i]) > fabs(from[i]);
        bits |= 1;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

/* --- blocks --- */

static void load_f32(dtype from, float *to, const uint8_t *bytes, uint64_t n)
{
    if (from == DTYPE_BFLOAT16)
        load_bf16(to, bytes, n);
    else if (from == DTYPE_FLOAT32)
        memcpy(to, bytes, n * sizeof *to);
    else
        cast_elements(from, DTYPE_FLOAT32, to, bytes, n);
}

/* The numbers in the dtype of the sum: as they are, if they have it and are aligned, else in `to`. */
static const void *load(const average_sum *s, void *to, const uint8_t *from, uint64_t n)
{
    const bool same = s->type == (s->wide ? DTYPE_FLOAT64 : DTYPE_FLOAT32);
    if (same && (uintptr_t)from % sizeof(double) == 0)
        return from;
    if (same) {
        memcpy(to, from, n * dtype_get(s->type)->itemsize_bytes);
    } else if (!s->wide) {
        load_f32(s->type, to, from, n);
    } else {
        load_f32(s->type, s->narrow, from, n);
        widen(to, s->narrow, n);
    }
    return to;
}

/* The sum is finite. */
static void store(const average_sum *s, uint8_t *to, const void *sum, uint64_t n)
{
    const size_t size = dtype_get(s->type)->itemsize_bytes;
    const bool narrows = s->wide && s->type != DTYPE_FLOAT64;
    if (narrows)
        narrow(s->narrow, sum, n, s->type != DTYPE_FLOAT32);
    const void *from = narrows ? s->narrow : sum;
    if (s->type == DTYPE_FLOAT32 || s->type == DTYPE_FLOAT64)
        memcpy(to, from, n * size);
    else if (s->type == DTYPE_BFLOAT16)
        store_bf16(to, from, n);
    else
        cast_elements(DTYPE_FLOAT32, s->type, to, from, n);
}

static void *room_of(const average_sum *s, size_t i)
{
    return (uint8_t *)s->values + i * AVERAGE_BLOCK * (s->wide ? sizeof(double) : sizeof(float));
}

static bool is_finite(const average_sum *s, const void *x, uint64_t n)
{
    return s->wide ? !any_special_f64(x, n) : !any_special_f32(x, n);
}

static bool load_input(average_sum *s, size_t i, const uint8_t *from, uint64_t n)
{
    s->x[i] = load(s, room_of(s, i), from, n);
    return is_finite(s, s->x[i], n);
}

static void sum_f32(const average_sum *s, float *acc, uint64_t n)
{
    const average_rule *r = s->rule;
    const float *base = s->x[r->count];
    memset(acc, 0, n * sizeof *acc);
    for (size_t i = 0; i < r->count; i++) {
        if (r->has_base)
            add_delta_f32(acc, s->x[i], base, (float)r->coefficients[i], n);
        else
            add_f32(acc, s->x[i], (float)r->coefficients[i], n);
    }
    if (r->has_base)
        add_to_base_f32(acc, base, (float)r->scale, n);
}

static void sum_f64(const average_sum *s, double *acc, uint64_t n)
{
    const average_rule *r = s->rule;
    const double *base = s->x[r->count];
    memset(acc, 0, n * sizeof *acc);
    for (size_t i = 0; i < r->count; i++) {
        const double c = r->slerp ? s->slerp[i] : r->coefficients[i];
        if (r->has_base)
            add_delta_f64(acc, s->x[i], base, c, n);
        else
            add_f64(acc, s->x[i], c, n);
    }
    if (r->has_base)
        add_to_base_f64(acc, base, r->scale, n);
}

bool average_sum_block(average_sum *s, const uint8_t *const *from, uint8_t *to, uint64_t n,
                       size_t *culprit)
{
    const size_t result = s->inputs + 1;
    for (*culprit = 0; *culprit < s->inputs; ++*culprit)
        if (!load_input(s, *culprit, from[*culprit], n))
            return false;
    void *sum = room_of(s, s->inputs);
    if (s->wide)
        sum_f64(s, sum, n);
    else
        sum_f32(s, sum, n);
    if (!is_finite(s, sum, n))
        return false;
    store(s, to, sum, n);
    if (!load_input(s, result, to, n))
        return false;
    for (size_t i = 0; i < s->rule->count; i++) {
        const double far = s->wide ? farthest_f64(s->x[i], s->x[result], n)
                                   : (double)farthest_f32(s->x[i], s->x[result], n);
        s->farthest[i] = far > s->farthest[i] ? far : s->farthest[i];
    }
    return true;
}

bool average_sum_products(average_sum *s, const uint8_t *const *from, uint64_t n, double *sums,
                          size_t *culprit)
{
    for (*culprit = 0; *culprit < 2; ++*culprit)
        if (!load_input(s, *culprit, from[*culprit], n))
            return false;
    add_products(sums, s->x[0], s->x[1], n);
    return true;
}
