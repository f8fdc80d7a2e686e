/* merge_kernel.h: the arithmetic of adding a product of two low-rank factors to a weight.
 *
 * Each element of the product is a sum over the rank in increasing order, of fused multiply-adds in the
 * type of the sum, from 0. PEFT's results on a CPU have the same bits up to rank 128; above, its library
 * adds parts of the sum. The product is scaled after the sum, added to the weight, and rounded once.
 *
 * Results do not depend on the processor, the number of threads, or how a weight is divided.
 */
#ifndef FSDPCK_LORA_MERGE_KERNEL_H
#define FSDPCK_LORA_MERGE_KERNEL_H

#include <stdbool.h>

#include "state/dtype.h"

/* The factors of `rows` x `columns` elements. */
typedef struct merge_factors {
    const float *left;  /* rows x rank */
    const float *right; /* rank x columns */
    uint64_t rows, columns, rank;
    float scale;
} merge_factors;

/* The same in float64, for weights of that type. */
typedef struct merge_factors64 {
    const double *left;
    const double *right;
    uint64_t rows, columns, rank;
    double scale;
} merge_factors64;

/* Columns that are computed together: `right` of a block fits the cache. */
uint64_t merge_block_columns(uint64_t rank);

/* to[i * to_columns + j] = scale * sum of left[i][k] * right[k][first + j], for n columns from
 * `first` and n_rows rows from `first_row`. */
void merge_product(const merge_factors *f, uint64_t first_row, uint64_t n_rows, uint64_t first,
                   uint64_t n, float *to, uint64_t to_columns);
void merge_product64(const merge_factors64 *f, uint64_t first_row, uint64_t n_rows, uint64_t first,
                     uint64_t n, double *to, uint64_t to_columns);

/* Adds n elements of a product to a weight of dtype `d` (float32, bfloat16 or float16) and
 * rounds the sums to `d`. round_delta: the product is rounded to `d` before. */
void merge_add(dtype d, void *weight, const float *delta, uint64_t n, bool round_delta);

/* Likewise, and multiplies the sums by factors before they are rounded: one for each element, or only one. */
void merge_add_scaled(dtype d, void *weight, const float *delta, uint64_t n, const float *factors,
                      bool each);

/* Whether `d` is a dtype of merge_add, or float64. */
bool merge_dtype_supported(dtype d);

/* Whether all n elements are finite. */
bool merge_all_finite(dtype d, const void *elements, uint64_t n);

#endif
