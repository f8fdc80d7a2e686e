/* merge_rows.c: applies the steps of a target to rows of its weight, one after another, as PEFT merges adapters: each
 * rounds its result. */
#include <stdlib.h>
#include <string.h>

#include "lora/merge_internal.h"
#include "lora/merge_kernel.h"

static bool is_wide(const merge_rows *r)
{
    return merge_dtype(r->m, r->target) == DTYPE_FLOAT64;
}

static size_t number_nbytes(bool wide)
{
    return wide ? sizeof(double) : sizeof(float);
}

/* --- opening --- */

static fsdpck_status open_factors(merge_rows *r, unsigned i, uint64_t step, fsdpck_error *err)
{
    const merge_step *s = merge_step_at(r->m, step);
    const void *left;
    r->factors_memory[i] = merge_alloc(r->rows, 1, sizeof(float), err);
    if (r->factors_memory[i] == NULL)
        return FSDPCK_LIMIT;
    if (s->transposed)
        return merge_column_factors(r->m, r->target, step, r->shared[i], &r->factors[i], err);
    left = r->left[i];
    r->factors[i] = r->factors_memory[i];
    return merge_row_factors(r->m, r->target, step, r->shared[i], left, r->first_row, r->rows,
                             r->factors_memory[i], err);
}

static fsdpck_status open_product(merge_rows *r, unsigned i, fsdpck_error *err)
{
    const uint64_t step = r->target->first_step + i;
    const merge_step *s = merge_step_at(r->m, step);
    const uint64_t expert = r->shape.row > 0 ? r->offsets[0] : 0;
    RETURN_IF(merge_factors_get(r->m, r->target, step, &r->shared[i], err));
    if (r->shared[i]->left == NULL) {
        r->left_memory[i] = merge_alloc(r->rows, s->rank, number_nbytes(is_wide(r)), err);
        if (r->left_memory[i] == NULL)
            return FSDPCK_LIMIT;
    }
    RETURN_IF(merge_left_get(r->m, r->target, step, r->shared[i], expert, r->first_row, r->rows,
                             r->left_memory[i], &r->left[i], err));
    if (r->product == NULL) {
        r->product = merge_alloc(MERGE_PRODUCT_ROWS, merge_block_columns(1), sizeof(double), err);
        if (r->product == NULL)
            return FSDPCK_LIMIT;
    }
    return s->magnitude == CAT_NONE ? FSDPCK_OK : open_factors(r, i, step, err);
}

fsdpck_status merge_rows_open(merge_rows *r, merger *m, const merge_target *t,
                              const uint64_t *offsets, const uint64_t *sizes, fsdpck_error *err)
{
    *r = (merge_rows){.m = m, .target = t, .shape = merge_shape_of(m, t), .rows = 1, .columns = 1};
    const merge_shape *g = &r->shape;
    memcpy(r->offsets, offsets, g->ndim * sizeof *offsets);
    memcpy(r->sizes, sizes, g->ndim * sizeof *sizes);
    if (g->ndim > 0) {
        r->first_row = offsets[g->row];
        r->rows = sizes[g->row];
    }
    if (g->ndim > g->row + 1) {
        const uint64_t rest = box_nelems(sizes + g->row + 2, g->ndim - g->row - 2);
        r->first_column = offsets[g->row + 1] * rest;
        r->columns = sizes[g->row + 1] * rest;
    }
    for (unsigned i = 0; i < t->step_count; i++)
        if (merge_step_at(m, t->first_step + i)->kind == MERGE_PRODUCT)
            RETURN_IF(open_product(r, i, err));
    return FSDPCK_OK;
}

void merge_rows_close(merge_rows *r)
{
    for (unsigned i = 0; r->target != NULL && i < r->target->step_count; i++) {
        if (r->shared[i] != NULL)
            merge_factors_release(r->m, r->target->first_step + i);
        free(r->left_memory[i]);
        free(r->factors_memory[i]);
    }
    free(r->product);
    *r = (merge_rows){0};
}

uint64_t merge_rows_nbytes(const merger *m, const merge_target *t, const uint64_t *sizes)
{
    const merge_shape g = merge_shape_of(m, t);
    const uint64_t rows = g.ndim > 0 ? sizes[g.row] : 1;
    uint64_t nbytes = MERGE_PRODUCT_ROWS * merge_block_columns(1) * sizeof(double);
    for (uint64_t i = t->first_step; i < t->first_step + t->step_count; i++)
        if (merge_step_at(m, i)->kind == MERGE_PRODUCT)
            nbytes += rows * (merge_step_at(m, i)->rank + 1) *
                      number_nbytes(merge_dtype(m, t) == DTYPE_FLOAT64);
    return nbytes;
}

/* --- steps --- */

static void add_wide(double *weight, const double *delta, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        weight[i] += delta[i];
}

/* Adds rows x columns of r->product to the weight at `to`, whose rows have r->columns. */
static void add_product(const merge_rows *r, unsigned i, uint64_t row, uint64_t rows,
                        uint64_t column, uint64_t columns, uint8_t *to)
{
    const merge_step *s = merge_step_at(r->m, r->target->first_step + i);
    const dtype d = merge_dtype(r->m, r->target);
    const uint64_t stride = r->columns * dtype_get(d)->itemsize_bytes;
    /* Whole rows are contiguous. */
    const bool whole = columns == r->columns && s->magnitude == CAT_NONE;
    const uint64_t n = whole ? rows * columns : columns;
    for (uint64_t k = 0; k < (whole ? 1 : rows); k++) {
        uint8_t *w = to + k * stride;
        const float *delta = (const float *)r->product + k * columns;
        if (is_wide(r))
            add_wide((double *)(void *)w, (const double *)r->product + k * columns, n);
        else if (s->magnitude == CAT_NONE)
            merge_add(d, w, delta, n, s->round_delta);
        else if (s->transposed)
            merge_add_scaled(d, w, delta, n, r->factors[i] + r->first_column + column, true);
        else
            merge_add_scaled(d, w, delta, n, r->factors[i] + row + k, false);
    }
}

static void apply_product(merge_rows *r, unsigned i, uint64_t at, uint64_t n, uint8_t *weight)
{
    const merge_step *s = merge_step_at(r->m, r->target->first_step + i);
    const uint64_t experts = r->shape.row > 0 ? r->offsets[0] : 0;
    const uint64_t right = experts * s->rank * r->shape.columns + r->first_column;
    const uint64_t itemsize = dtype_get(merge_dtype(r->m, r->target))->itemsize_bytes;
    const uint64_t most = merge_block_columns(s->rank);
    const merge_factors f = {r->left[i], (const float *)r->shared[i]->right + right,
                             r->rows,    r->shape.columns,
                             s->rank,    (float)s->scale};
    const merge_factors64 wide = {r->left[i], (const double *)r->shared[i]->right + right,
                                  r->rows,    r->shape.columns,
                                  s->rank,    s->scale};
    for (uint64_t column = 0; column < r->columns; column += most) {
        const uint64_t columns = r->columns - column < most ? r->columns - column : most;
        for (uint64_t row = at; row < at + n; row += MERGE_PRODUCT_ROWS) {
            const uint64_t rows =
                at + n - row < MERGE_PRODUCT_ROWS ? at + n - row : MERGE_PRODUCT_ROWS;
            if (is_wide(r))
                merge_product64(&wide, row, rows, column, columns, r->product, columns);
            else
                merge_product(&f, row, rows, column, columns, r->product, columns);
            add_product(r, i, row, rows, column, columns,
                        weight + ((row - at) * r->columns + column) * itemsize);
        }
    }
}

static fsdpck_status apply_add(const merge_rows *r, const merge_step *s, uint64_t at, uint64_t n,
                               void *weight, fsdpck_error *err)
{
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    const uint64_t nelems = n * r->columns;
    double *numbers = merge_alloc(nelems, 1, sizeof *numbers, err);
    if (numbers == NULL)
        return FSDPCK_LIMIT;
    memcpy(offsets, r->offsets, sizeof offsets);
    memcpy(sizes, r->sizes, sizeof sizes);
    if (r->shape.ndim > 0) {
        offsets[r->shape.row] = r->first_row + at;
        sizes[r->shape.row] = n;
    }
    const fsdpck_status st =
        merge_read_numbers(r->m, s->input, s->a, offsets, sizes, is_wide(r), numbers, err);
    if (st == FSDPCK_OK && is_wide(r)) {
        for (uint64_t i = 0; i < nelems; i++)
            numbers[i] *= s->scale;
        add_wide(weight, numbers, nelems);
    } else if (st == FSDPCK_OK) {
        float *delta = (float *)(void *)numbers;
        for (uint64_t i = 0; i < nelems; i++)
            delta[i] *= (float)s->scale;
        merge_add(merge_dtype(r->m, r->target), weight, delta, nelems, s->round_delta);
    }
    free(numbers);
    return st;
}

static fsdpck_status apply_rows(const merge_rows *r, const merge_step *s, uint64_t at, uint64_t n,
                                uint8_t *weight, fsdpck_error *err)
{
    const dtype d = merge_dtype(r->m, r->target);
    const uint64_t row_nbytes = r->columns * dtype_get(d)->itemsize_bytes;
    for (uint64_t i = 0; i < s->row_count; i++) {
        const uint64_t row = *VEC_AT(&r->m->list.rows, const uint64_t, s->first_row + i);
        const uint64_t offsets[2] = {i, r->first_column}, sizes[2] = {1, r->columns};
        if (row >= r->first_row + at && row < r->first_row + at + n)
            RETURN_IF(merge_read_cast(r->m, s->input, s->a, offsets, sizes, d,
                                      weight + (row - r->first_row - at) * row_nbytes, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status fail_not_finite(const merge_rows *r, const merge_step *s, fsdpck_error *err)
{
    const char *adapter = strtab_text(&r->m->list.adapters, s->adapter);
    return FAIL_WITH(
        err, BADINPUT, LORA_NAN,
        ("the merged '%s' contains NaN or infinity", merge_target_name(r->m, r->target)),
        (tensor, merge_target_name(r->m, r->target)), (found, "adapter '%s'", adapter),
        (next, "check the adapter with: fsdpck verify --level numeric --stats"));
}

fsdpck_status merge_rows_apply(merge_rows *r, uint64_t at, uint64_t n, void *weight,
                               fsdpck_error *err)
{
    for (unsigned i = 0; i < r->target->step_count; i++) {
        const merge_step *s = merge_step_at(r->m, r->target->first_step + i);
        if (s->kind == MERGE_PRODUCT)
            apply_product(r, i, at, n, weight);
        else if (s->kind == MERGE_ADD)
            RETURN_IF(apply_add(r, s, at, n, weight, err));
        else if (s->kind == MERGE_ROWS)
            RETURN_IF(apply_rows(r, s, at, n, weight, err));
        if (s->finite && !merge_all_finite(merge_dtype(r->m, r->target), weight, n * r->columns))
            return fail_not_finite(r, s, err);
    }
    return FSDPCK_OK;
}
