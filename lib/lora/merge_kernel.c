#include "lora/merge_kernel.h"

#include <math.h>
#include <string.h>

#include "state/cast.h"

/* MERGE_CLONES comes from the build: the loops compiled for wider vectors and fused multiply-adds too,
 * where the machine that runs them is to choose. Without such instructions, fmaf is a function with the
 * same results. */

/* Elements per step of the conversions. */
#define BLOCK 256u
/* Columns that a row's sums are kept for in registers. */
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

/* The product of one row with n columns, in steps of WIDTH and a rest. Written so that compilers
 * vectorize it and keep the sums in registers. */
#define PRODUCT(name, real, multiply_add)                                                           \
    MERGE_CLONES static void name(const real *left, const real *right, uint64_t stride,             \
                                  uint64_t rank, uint64_t n, real scale, real *to)                  \
    {                                                                                               \
        uint64_t j = 0;                                                                             \
        for (; j + WIDTH <= n; j += WIDTH) {                                                        \
            real sums[WIDTH] = {0};                                                                 \
            const real *from = right + j;                                                           \
            for (uint64_t k = 0; k < rank; k++, from += stride)                                     \
                for (unsigned c = 0; c < WIDTH; c++)                                                \
                    sums[c] = multiply_add(left[k], from[c], sums[c]);                              \
            for (unsigned c = 0; c < WIDTH; c++)                                                    \
                to[j + c] = sums[c] * scale;                                                        \
        }                                                                                           \
        if (j < n) {                                                                                \
            real sums[WIDTH] = {0};                                                                 \
            for (uint64_t k = 0; k < rank; k++)                                                     \
                for (uint64_t c = 0; c < n - j; c++)                                                \
                    sums[c] = multiply_add(left[k], right[k * stride + j + c], sums[c]);            \
            for (uint64_t c = 0; c < n - j; c++)                                                    \
                to[j + c] = sums[c] * scale;                                                        \
        }                                                                                           \
    }

PRODUCT(product_row, float, fmaf)
PRODUCT(product_row64, double, fma)

void merge_product(const merge_factors *f, uint64_t first_row, uint64_t n_rows, uint64_t first,
                   uint64_t n, float *to, uint64_t to_columns)
{
    for (uint64_t i = 0; i < n_rows; i++)
        product_row(f->left + (first_row + i) * f->rank, f->right + first, f->columns, f->rank, n,
                    f->scale, to + i * to_columns);
}

void merge_product64(const merge_factors64 *f, uint64_t first_row, uint64_t n_rows, uint64_t first,
                     uint64_t n, double *to, uint64_t to_columns)
{
    for (uint64_t i = 0; i < n_rows; i++)
        product_row64(f->left + (first_row + i) * f->rank, f->right + first, f->columns, f->rank, n,
                      f->scale, to + i * to_columns);
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

MERGE_CLONES static void add_bf16(uint16_t *weight, const float *delta)
{
    for (unsigned i = 0; i < BLOCK; i++)
        weight[i] = (uint16_t)round_bf16(f32_of((uint32_t)weight[i] << 16) + delta[i]);
}

MERGE_CLONES static void add_bf16_rounded(uint16_t *weight, const float *delta)
{
    for (unsigned i = 0; i < BLOCK; i++)
        weight[i] = (uint16_t)round_bf16(f32_of((uint32_t)weight[i] << 16) +
                                         f32_of(round_bf16(delta[i]) << 16));
}

static void add_f32(float *weight, const float *delta)
{
    for (unsigned i = 0; i < BLOCK; i++)
        weight[i] += delta[i];
}

static void add_f16(uint16_t *weight, float *delta, bool round_delta)
{
    uint16_t rounded[BLOCK];
    float sums[BLOCK];
    if (round_delta) {
        cast_elements(DTYPE_FLOAT32, DTYPE_FLOAT16, rounded, delta, BLOCK);
        cast_elements(DTYPE_FLOAT16, DTYPE_FLOAT32, delta, rounded, BLOCK);
    }
    cast_elements(DTYPE_FLOAT16, DTYPE_FLOAT32, sums, weight, BLOCK);
    add_f32(sums, delta);
    cast_elements(DTYPE_FLOAT32, DTYPE_FLOAT16, weight, sums, BLOCK);
}

void merge_add(dtype d, void *weight, const float *delta, uint64_t n, bool round_delta)
{
    const size_t itemsize = dtype_get(d)->itemsize_bytes;
    for (uint64_t at = 0; at < n; at += BLOCK) {
        const size_t count = n - at < BLOCK ? (size_t)(n - at) : BLOCK;
        uint32_t memory[BLOCK] = {0};
        float part[BLOCK] = {0};
        uint8_t *w = (uint8_t *)weight + at * itemsize;
        memcpy(memory, w, count * itemsize);
        memcpy(part, delta + at, count * sizeof *part);
        if (d == DTYPE_BFLOAT16 && round_delta)
            add_bf16_rounded((uint16_t *)memory, part);
        else if (d == DTYPE_BFLOAT16)
            add_bf16((uint16_t *)memory, part);
        else if (d == DTYPE_FLOAT16)
            add_f16((uint16_t *)memory, part, round_delta);
        else
            add_f32((float *)memory, part);
        memcpy(w, memory, count * itemsize);
    }
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
