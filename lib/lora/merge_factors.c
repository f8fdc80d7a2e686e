/* merge_factors.c: the factors of steps. The right one of a step is used by all rows of its weight, so its streams
 * share it; factors without users are kept up to a limit, and always the last ones, as another box of the tensor may
 * follow. */
#include <stdlib.h>
#include <string.h>

#include "lora/merge_internal.h"
#include "state/cast.h"

#define IDLE_NBYTES_MAX ((uint64_t)32 << 20)
/* Numbers that are read at once where a factor is rearranged. */
#define PART_NUMBERS ((uint64_t)1 << 20)
/* Left factors up to this size are shared too, so that boxes of few rows need not read theirs. */
#define LEFT_NBYTES_MAX ((uint64_t)8 << 20)

static size_t number_nbytes(bool wide)
{
    return wide ? sizeof(double) : sizeof(float);
}

/* --- reading numbers --- */

fsdpck_status merge_read_cast(const merger *m, uint32_t input, uint32_t tensor,
                              const uint64_t *offsets, const uint64_t *sizes, dtype to,
                              void *elements, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(merge_input_at(m, input)->cat, tensor);
    const dtype from = (dtype)t->dtype;
    const uint64_t n = box_nelems(sizes, t->ndim);
    if (n == 0)
        return FSDPCK_OK;
    if (from == to)
        return box_read(merge_reader_at(m, input), tensor, offsets, sizes, elements, err);
    void *raw = merge_alloc(n, 1, dtype_get(from)->itemsize_bytes, err);
    if (raw == NULL)
        return FSDPCK_LIMIT;
    const fsdpck_status st = box_read(merge_reader_at(m, input), tensor, offsets, sizes, raw, err);
    if (st == FSDPCK_OK)
        cast_elements(from, to, elements, raw, n);
    free(raw);
    return st;
}

fsdpck_status merge_read_numbers(const merger *m, uint32_t input, uint32_t tensor,
                                 const uint64_t *offsets, const uint64_t *sizes, bool wide,
                                 void *numbers, fsdpck_error *err)
{
    return merge_read_cast(m, input, tensor, offsets, sizes, wide ? DTYPE_FLOAT64 : DTYPE_FLOAT32,
                           numbers, err);
}

/* n rows of a factor from row `first`: n x all its other elements. */
static fsdpck_status read_factor_rows(const merger *m, uint32_t input, uint32_t tensor,
                                      uint64_t first, uint64_t n, bool wide, void *numbers,
                                      fsdpck_error *err)
{
    const catalogue *c = merge_input_at(m, input)->cat;
    const unsigned ndim = catalogue_tensor(c, tensor)->ndim;
    uint64_t offsets[NDIM_MAX] = {0}, sizes[NDIM_MAX];
    memcpy(sizes, catalogue_shape(c, tensor), ndim * sizeof *sizes);
    offsets[0] = first;
    sizes[0] = n;
    return merge_read_numbers(m, input, tensor, offsets, sizes, wide, numbers, err);
}

static void put(void *to, uint64_t at, const void *from, uint64_t from_at, bool wide)
{
    if (wide)
        ((double *)to)[at] = ((const double *)from)[from_at];
    else
        ((float *)to)[at] = ((const float *)from)[from_at];
}

/* --- factors by index of the first dim --- */

/* b [out, r*E] as rows [E][out][r], or columns [E][r][out]. */
static fsdpck_status arrange_b(const merger *m, const merge_step *s, uint64_t experts, uint64_t out,
                               bool as_columns, bool wide, void *to, fsdpck_error *err)
{
    const uint64_t row = s->rank * experts;
    const uint64_t step = row >= PART_NUMBERS ? 1 : PART_NUMBERS / row;
    void *part = merge_alloc(step, row, number_nbytes(wide), err);
    fsdpck_status st = part == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    for (uint64_t first = 0; st == FSDPCK_OK && first < out; first += step) {
        const uint64_t n = out - first < step ? out - first : step;
        st = read_factor_rows(m, s->input, s->b, first, n, wide, part, err);
        for (uint64_t o = 0; st == FSDPCK_OK && o < n; o++)
            for (uint64_t k = 0; k < s->rank; k++)
                for (uint64_t e = 0; e < experts; e++)
                    put(to,
                        as_columns ? (e * s->rank + k) * out + first + o
                                   : (e * out + first + o) * s->rank + k,
                        part, o * row + k * experts + e, wide);
    }
    free(part);
    return st;
}

/* a [r*E, in] as rows [E][in][r]. */
static fsdpck_status arrange_a(const merger *m, const merge_step *s, uint64_t experts, uint64_t in,
                               bool wide, void *to, fsdpck_error *err)
{
    void *part = merge_alloc(s->rank, in, number_nbytes(wide), err);
    fsdpck_status st = part == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    for (uint64_t e = 0; st == FSDPCK_OK && e < experts; e++) {
        st = read_factor_rows(m, s->input, s->a, e * s->rank, s->rank, wide, part, err);
        for (uint64_t k = 0; st == FSDPCK_OK && k < s->rank; k++)
            for (uint64_t i = 0; i < in; i++)
                put(to, (e * in + i) * s->rank + k, part, k * in + i, wide);
    }
    free(part);
    return st;
}

/* --- the shared factors of a step --- */

static fsdpck_status load_experts(const merger *m, const merge_step *s, const merge_shape *g,
                                  bool wide, merge_shared *f, fsdpck_error *err)
{
    if (s->transposed) {
        RETURN_IF(arrange_a(m, s, g->experts, g->rows, wide, f->left, err));
        return arrange_b(m, s, g->experts, g->columns, true, wide, f->right, err);
    }
    RETURN_IF(arrange_b(m, s, g->experts, g->rows, false, wide, f->left, err));
    return read_factor_rows(m, s->input, s->a, 0, s->rank * g->experts, wide, f->right, err);
}

/* a [r, in], columns first_row to first_row + n, as rows [n][r]. */
static fsdpck_status read_left_transposed(const merger *m, const merge_step *s, uint64_t first_row,
                                          uint64_t n, bool wide, void *to, fsdpck_error *err)
{
    const uint64_t offsets[2] = {0, first_row}, sizes[2] = {s->rank, n};
    void *part = merge_alloc(s->rank, n, number_nbytes(wide), err);
    if (part == NULL)
        return FSDPCK_LIMIT;
    const fsdpck_status st = merge_read_numbers(m, s->input, s->a, offsets, sizes, wide, part, err);
    for (uint64_t k = 0; st == FSDPCK_OK && k < s->rank; k++)
        for (uint64_t i = 0; i < n; i++)
            put(to, i * s->rank + k, part, k * n + i, wide);
    free(part);
    return st;
}

static fsdpck_status read_left(const merger *m, const merge_step *s, uint64_t first_row, uint64_t n,
                               bool wide, void *to, fsdpck_error *err)
{
    return s->transposed ? read_left_transposed(m, s, first_row, n, wide, to, err)
                         : read_factor_rows(m, s->input, s->b, first_row, n, wide, to, err);
}

/* Into f->left and f->right, without the lock. */
static fsdpck_status load(const merger *m, const merge_target *t, const merge_step *s,
                          merge_shared *f, fsdpck_error *err)
{
    const merge_shape g = merge_shape_of(m, t);
    const bool wide = merge_dtype(m, t) == DTYPE_FLOAT64;
    const size_t one = number_nbytes(wide);
    const uint64_t ranks = s->rank * g.experts;
    f->right = merge_alloc(ranks, g.columns, one, err);
    if (f->right == NULL)
        return FSDPCK_LIMIT;
    const bool has_left = g.row > 0 || g.rows <= LEFT_NBYTES_MAX / one / ranks;
    f->left = has_left ? merge_alloc(ranks, g.rows, one, err) : NULL;
    if (has_left && f->left == NULL)
        return FSDPCK_LIMIT;
    f->nbytes = ranks * one * (g.columns + (has_left ? g.rows : 0));
    if (g.row > 0)
        return load_experts(m, s, &g, wide, f, err);
    if (has_left)
        RETURN_IF(read_left(m, s, 0, g.rows, wide, f->left, err));
    return s->transposed ? arrange_b(m, s, 1, g.columns, true, wide, f->right, err)
                         : read_factor_rows(m, s->input, s->a, 0, s->rank, wide, f->right, err);
}

static void drop(merge_shared *f)
{
    free(f->left);
    free(f->right);
    f->left = f->right = NULL;
    f->nbytes = 0;
    f->state = SHARED_ABSENT;
}

static void leave_idle(merger *m, uint64_t step)
{
    for (size_t i = 0; i < m->idle.count; i++) {
        uint64_t *at = VEC_AT(&m->idle, uint64_t, i);
        if (*at != step)
            continue;
        memmove(at, at + 1, (m->idle.count - i - 1) * sizeof *at);
        m->idle.count--;
        m->idle_nbytes -= m->shared[step].nbytes;
        return;
    }
}

fsdpck_status merge_factors_get(merger *m, const merge_target *t, uint64_t step,
                                const merge_shared **shared, fsdpck_error *err)
{
    merge_shared *f = &m->shared[step];
    fsdpck_status st = FSDPCK_OK;
    pthread_mutex_lock(&m->lock);
    while (f->state == SHARED_LOADING)
        pthread_cond_wait(&m->changed_state, &m->lock);
    if (f->state == SHARED_READY && f->users == 0)
        leave_idle(m, step);
    if (f->state == SHARED_ABSENT) {
        merge_shared made = {0};
        f->state = SHARED_LOADING;
        pthread_mutex_unlock(&m->lock);
        st = load(m, t, merge_step_at(m, step), &made, err);
        pthread_mutex_lock(&m->lock);
        f->left = made.left;
        f->right = made.right;
        f->nbytes = made.nbytes;
        f->state = SHARED_READY;
        if (st != FSDPCK_OK)
            drop(f);
        pthread_cond_broadcast(&m->changed_state);
    }
    if (st == FSDPCK_OK) {
        f->users++;
        *shared = f;
    }
    pthread_mutex_unlock(&m->lock);
    return st;
}

void merge_factors_release(merger *m, uint64_t step)
{
    merge_shared *f = &m->shared[step];
    pthread_mutex_lock(&m->lock);
    if (--f->users == 0) {
        fsdpck_error unused;
        m->idle_nbytes += f->nbytes;
        /* Its memory is reserved. */
        if (vec_add(&m->idle, &step, &unused) != FSDPCK_OK)
            m->idle_nbytes -= f->nbytes;
        while (m->idle_nbytes > IDLE_NBYTES_MAX && m->idle.count > 1) {
            const uint64_t oldest = *VEC_AT(&m->idle, uint64_t, 0);
            leave_idle(m, oldest);
            drop(&m->shared[oldest]);
        }
    }
    pthread_mutex_unlock(&m->lock);
}

fsdpck_status merge_left_get(const merger *m, const merge_target *t, uint64_t step,
                             const merge_shared *shared, uint64_t expert, uint64_t first_row,
                             uint64_t n, void *memory, const void **left, fsdpck_error *err)
{
    const merge_step *s = merge_step_at(m, step);
    const bool wide = merge_dtype(m, t) == DTYPE_FLOAT64;
    if (shared->left != NULL) {
        const merge_shape g = merge_shape_of(m, t);
        *left = (const uint8_t *)shared->left +
                (expert * g.rows + first_row) * s->rank * number_nbytes(wide);
        return FSDPCK_OK;
    }
    *left = memory;
    return read_left(m, s, first_row, n, wide, memory, err);
}
