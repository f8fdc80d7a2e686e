#include "lora/merge_kernel.h"

#include <math.h>
#include <string.h>

#include "state/cast.h"

/* MERGE_CLONES comes from the build: the loops compiled for wider vectors and fused multiply-adds too,
 * where the machine that runs them is to choose. Without such instructions, fmaf is a function with the
 * same results. */

/* Elements per step of the conversions. */
#define BLOCK 256u
/* Rows and columns whose sums are kept in registers. */
#define GROUP 4u
#define WIDTH 64u
/* Floats of `right` in one block of columns. */
#define RIGHT_FLOATS  32768u
#define COLUMNS_LEAST 64u
#define COLUMNS_MOST  1024u

uint64_t merge_block_columns(uint64_t rank)
{
    const uint64_t n = RIGHT_FLOATS / (rank == 0 ? 1 : rank) / WIDTH * WIDTH;
    return n < COLUMNS_LEAST ? COLUMNS_LEAST : n > COLUMNS_MOST ? COLUMNS_MOST : n;
}

/* Products of GROUP rows with n columns, in steps of WIDTH; n is a multiple of it. Written so that compilers vectorize it and
 * keep the sums in registers. */
#define PRODUCT_GROUP(name, real, multiply_add)                                         \
    MERGE_CLONES static void name(const real *left, const real *right, uint64_t stride, \
                                  uint64_t rank, uint64_t n, real scale, real *to,      \
                                  uint64_t to_columns)                                  \
    {                                                                                   \
        for (uint64_t j = 0; j < n; j += WIDTH) {                                       \
            real s0[WIDTH] = {0}, s1[WIDTH] = {0}, s2[WIDTH] = {0}, s3[WIDTH] = {0};    \
            const real *from = right + j;                                               \
            for (uint64_t k = 0; k < rank; k++, from += stride) {                       \
                const real a = left[k], b = left[rank + k];                             \
                const real c = left[2 * rank + k], d = left[3 * rank + k];              \
                for (unsigned i = 0; i < WIDTH; i++) {                                  \
                    s0[i] = multiply_add(a, from[i], s0[i]);                            \
                    s1[i] = multiply_add(b, from[i], s1[i]);                            \
                    s2[i] = multiply_add(c, from[i], s2[i]);                            \
                    s3[i] = multiply_add(d, from[i], s3[i]);                            \
                }                                                                       \
            }                                                                           \
            for (unsigned i = 0; i < WIDTH; i++) {                                      \
                to[j + i] = s0[i] * scale;                                              \
                to[to_columns + j + i] = s1[i] * scale;                                 \
                to[2 * to_columns + j + i] = s2[i] * scale;                             \
                to[3 * to_columns + j + i] = s3[i] * scale;                             \
            }                                                                           \
        }                                                                               \
    }

/* Of one row with n columns. */
#define PRODUCT_ROW(name, real, multiply_add)                                            \
    MERGE_CLONES static void name(const real *left, const real *right, uint64_t stride,  \
                                  uint64_t rank, uint64_t n, real scale, real *to)       \
    {                                                                                    \
        for (uint64_t j = 0; j < n; j += WIDTH) {                                        \
            const uint64_t count = n - j < WIDTH ? n - j : WIDTH;                        \
            real sums[WIDTH] = {0};                                                      \
            for (uint64_t k = 0; k < rank; k++)                                          \
                for (uint64_t i = 0; i < count; i++)                                     \
                    sums[i] = multiply_add(left[k], right[k * stride + j + i], sums[i]); \
            for (uint64_t i = 0; i < count; i++)                                         \
                to[j + i] = sums[i] * scale;                                             \
        }                                                                                \
    }

PRODUCT_GROUP(product_group, float, fmaf)
PRODUCT_ROW(product_row, float, fmaf)
PRODUCT_GROUP(product_group64, double, fma)
PRODUCT_ROW(product_row64, double, fma)

/* n rows by groups, then single ones; columns by steps, then the rest. */
#define PRODUCT(f, group, row, first_row, n_rows, first, n, to, to_columns)                 \
    do {                                                                                    \
        const uint64_t wide = (n) / WIDTH * WIDTH;                                          \
        for (uint64_t i = 0; i < (n_rows);) {                                               \
            const bool all = (n_rows)-i >= GROUP;                                           \
            const uint64_t count = all ? GROUP : 1, done = all ? wide : 0;                  \
            if (all)                                                                        \
                group((f)->left + ((first_row) + i) * (f)->rank, (f)->right + (first),      \
                      (f)->columns, (f)->rank, wide, (f)->scale, (to) + i * (to_columns),   \
                      (to_columns));                                                        \
            for (uint64_t k = i; k < i + count && done < (n); k++)                          \
                row((f)->left + ((first_row) + k) * (f)->rank, (f)->right + (first) + done, \
                    (f)->columns, (f)->rank, (n)-done, (f)->scale,                          \
                    (to) + k * (to_columns) + done);                                        \
            i += count;                                                                     \
        }                                                                                   \
    } while (0)

void merge_product(const merge_factors *f, uint64_t first_row, uint64_t n_rows, uint64_t first,
                   uint64_t n, float *to, uint64_t to_columns)
{
    PRODUCT(f, product_group, product_row, first_row, n_rows, first, n, to, to_columns);
}

void merge_product64(const merge_factors64 *f, uint64_t first_row, uint64_t n_rows, uint64_t first,
                     uint64_t n, double *to, uint64_t to_columns)
{
    PRODUCT(f, product_group64, product_row64, first_row, n_rows, first, n, to, to_columns);
}

static inline uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float f32_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* To nearest, ties to even; NaN becomes torch's. */
static inline uint32_t round_bf16(float f)
{
    const uint32_t bits = bits_of(f);
    const uint32_t nan = 0u - (uint32_t)((bits & 0x7FFFFFFFu) > 0x7F800000u);
    return (((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) & ~nan) | (0xFFFF & nan);
}

MERGE_CLONES static void add_bf16(uint16_t *weight, const float *delta, size_t n)
{
    for (size_t i = 0; i < n; i++)
        weight[i] = (uint16_t)round_bf16(f32_of((uint32_t)weight[i] << 16) + delta[i]);
}

MERGE_CLONES static void add_bf16_rounded(uint16_t *weight, const float *delta, size_t n)
{
    for (size_t i = 0; i < n; i++)
        weight[i] = (uint16_t)round_bf16(f32_of((uint32_t)weight[i] << 16) +
                                         f32_of(round_bf16(delta[i]) << 16));
}

MERGE_CLONES static void add_delta_float32(float *weight, const float *delta, size_t n)
{
    for (size_t i = 0; i < n; i++)
        weight[i] += delta[i];
}

static void add_f16(uint16_t *weight, const float *delta, size_t n, bool round_delta)
{
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? n - at : BLOCK;
        uint16_t rounded[BLOCK];
        float sums[BLOCK], part[BLOCK];
        memcpy(part, delta + at, count * sizeof *part);
        if (round_delta) {
            cast_elements(DTYPE_FLOAT32, DTYPE_FLOAT16, rounded, part, count);
            cast_elements(DTYPE_FLOAT16, DTYPE_FLOAT32, part, rounded, count);
        }
        cast_elements(DTYPE_FLOAT16, DTYPE_FLOAT32, sums, weight + at, count);
        add_delta_float32(sums, part, count);
        cast_elements(DTYPE_FLOAT32, DTYPE_FLOAT16, weight + at, sums, count);
    }
}

void merge_add(dtype d, void *weight, const float *delta, uint64_t n, bool round_delta)
{
    if (d == DTYPE_BFLOAT16 && round_delta)
        add_bf16_rounded(weight, delta, n);
    else if (d == DTYPE_BFLOAT16)
        add_bf16(weight, delta, n);
    else if (d == DTYPE_FLOAT16)
        add_f16(weight, delta, n, round_delta);
    else
        add_delta_float32(weight, delta, n);
}

void merge_add_scaled(dtype d, void *weight, const float *delta, uint64_t n, const float *factors,
                      bool each)
{
    const size_t itemsize = dtype_get(d)->itemsize_bytes;
    for (uint64_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? (size_t)(n - at) : BLOCK;
        uint8_t *w = (uint8_t *)weight + at * itemsize;
        float sums[BLOCK];
        if (d == DTYPE_FLOAT32)
            memcpy(sums, w, count * sizeof *sums);
        else
            cast_elements(d, DTYPE_FLOAT32, sums, w, count);
        for (size_t i = 0; i < count; i++)
            sums[i] = (sums[i] + delta[at + i]) * factors[each ? at + i : 0];
        if (d == DTYPE_FLOAT32)
            memcpy(w, sums, count * sizeof *sums);
        else
            cast_elements(DTYPE_FLOAT32, d, w, sums, count);
    }
}

bool merge_dtype_supported(dtype d)
{
    return d == DTYPE_BFLOAT16 || d == DTYPE_FLOAT16 || d == DTYPE_FLOAT32 || d == DTYPE_FLOAT64;
}

bool merge_all_finite(dtype d, const void *elements, uint64_t n)
{
    const uint8_t *bytes = elements;
    const size_t itemsize = dtype_get(d)->itemsize_bytes;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t v = 0;
        memcpy(&v, bytes + i * itemsize, itemsize);
        const uint64_t exponent = d == DTYPE_BFLOAT16  ? 0x7F80u
                                  : d == DTYPE_FLOAT16 ? 0x7C00u
                                  : d == DTYPE_FLOAT32 ? 0x7F800000u
                                                       : 0x7FF0000000000000u;
        if ((v & exponent) == exponent)
            return false;
    }
    return true;
}
