/* merge_norms.c: the norms that DoRA divides by, of the weight before all adapters plus the product of one. A norm needs
 * all elements of an output: all columns of a row, or all rows of a column, whatever the shards are. */
#include <math.h>
#include <stdlib.h>

#include "lora/merge_internal.h"
#include "lora/merge_kernel.h"

/* Room for n rows of a weight and their products. */
typedef struct norm_rows {
    float *weight;  /* n x columns; then the sums */
    float *product; /* n x columns */
} norm_rows;

static fsdpck_status norm_rows_init(norm_rows *v, uint64_t rows, uint64_t columns,
                                    fsdpck_error *err)
{
    v->weight = merge_alloc(rows, columns, sizeof *v->weight, err);
    v->product = v->weight == NULL ? NULL : merge_alloc(rows, columns, sizeof *v->product, err);
    return v->product == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
}

static void norm_rows_release(norm_rows *v)
{
    free(v->weight);
    free(v->product);
}

static uint64_t block_rows(const merge_shape *g)
{
    const uint64_t n = g->columns >= MERGE_BLOCK_NELEMS ? 1 : MERGE_BLOCK_NELEMS / g->columns;
    return n < g->rows ? n : g->rows;
}

/* v->weight: the rows of the weight plus the product. */
static fsdpck_status read_rows(const merger *m, const merge_target *t, const merge_step *s,
                               const merge_shared *shared, const float *left, uint64_t first_row,
                               uint64_t n, norm_rows *v, fsdpck_error *err)
{
    const merge_shape g = merge_shape_of(m, t);
    uint32_t input;
    const uint32_t tensor = merge_from(m, t, &input);
    const catalogue *c = merge_input_at(m, input)->cat;
    const merge_factors f = {.left = left,
                             .right = shared->right,
                             .rows = n,
                             .columns = g.columns,
                             .rank = s->rank,
                             .scale = (float)s->scale};
    uint64_t offsets[NDIM_MAX] = {0}, sizes[NDIM_MAX];
    memcpy(sizes, catalogue_shape(c, tensor), g.ndim * sizeof *sizes);
    offsets[g.row] = first_row;
    sizes[g.row] = n;
    RETURN_IF(merge_read_numbers(m, input, tensor, offsets, sizes, false, v->weight, err));
    merge_product(&f, 0, n, 0, g.columns, v->product, g.columns);
    for (uint64_t i = 0; i < n * g.columns; i++)
        v->weight[i] += v->product[i];
    return FSDPCK_OK;
}

static float factor(float magnitude, double sum)
{
    return magnitude / (float)sqrt(sum);
}

static fsdpck_status read_magnitudes(const merger *m, const merge_step *s, uint64_t first,
                                     uint64_t n, float *to, fsdpck_error *err)
{
    const catalogue *c = merge_input_at(m, s->input)->cat;
    const unsigned ndim = catalogue_tensor(c, s->magnitude)->ndim;
    const uint64_t *shape = catalogue_shape(c, s->magnitude);
    uint64_t offsets[NDIM_MAX] = {0}, sizes[NDIM_MAX];
    /* Of convolutions [1, out, 1, 1]. */
    for (unsigned d = 0; d < ndim; d++) {
        sizes[d] = shape[d];
        if (shape[d] > 1) {
            offsets[d] = first;
            sizes[d] = n;
        }
    }
    return merge_read_numbers(m, s->input, s->magnitude, offsets, sizes, false, to, err);
}

fsdpck_status merge_row_factors(const merger *m, const merge_target *t, uint64_t step,
                                const merge_shared *shared, const float *left, uint64_t first_row,
                                uint64_t n, float *factors, fsdpck_error *err)
{
    const merge_step *s = merge_step_at(m, step);
    const merge_shape g = merge_shape_of(m, t);
    const uint64_t most = block_rows(&g);
    norm_rows v = {0};
    fsdpck_status st = norm_rows_init(&v, most, g.columns, err);
    if (st == FSDPCK_OK)
        st = read_magnitudes(m, s, first_row, n, factors, err);
    for (uint64_t at = 0; st == FSDPCK_OK && at < n; at += most) {
        const uint64_t count = n - at < most ? n - at : most;
        st = read_rows(m, t, s, shared, left + at * s->rank, first_row + at, count, &v, err);
        for (uint64_t i = 0; st == FSDPCK_OK && i < count; i++) {
            double sum = 0;
            for (uint64_t j = 0; j < g.columns; j++)
                sum += (double)v.weight[i * g.columns + j] * v.weight[i * g.columns + j];
            factors[at + i] = factor(factors[at + i], sum);
        }
    }
    norm_rows_release(&v);
    return st;
}

/* The sums of squares of all columns. */
static fsdpck_status add_squares(const merger *m, const merge_target *t, uint64_t step,
                                 const merge_shared *shared, double *sums, fsdpck_error *err)
{
    const merge_step *s = merge_step_at(m, step);
    const merge_shape g = merge_shape_of(m, t);
    const uint64_t most = block_rows(&g);
    norm_rows v = {0};
    fsdpck_status st = norm_rows_init(&v, most, g.columns, err);
    float *memory = st == FSDPCK_OK ? merge_alloc(most, s->rank, sizeof *memory, err) : NULL;
    if (st == FSDPCK_OK && memory == NULL)
        st = FSDPCK_LIMIT;
    for (uint64_t at = 0; st == FSDPCK_OK && at < g.rows; at += most) {
        const uint64_t count = g.rows - at < most ? g.rows - at : most;
        const void *left;
        st = merge_left_get(m, t, step, shared, 0, at, count, memory, &left, err);
        if (st == FSDPCK_OK)
            st = read_rows(m, t, s, shared, left, at, count, &v, err);
        for (uint64_t i = 0; st == FSDPCK_OK && i < count; i++)
            for (uint64_t j = 0; j < g.columns; j++)
                sums[j] += (double)v.weight[i * g.columns + j] * v.weight[i * g.columns + j];
    }
    free(memory);
    norm_rows_release(&v);
    return st;
}

static fsdpck_status compute_columns(const merger *m, const merge_target *t, uint64_t step,
                                     const merge_shared *shared, float **factors, fsdpck_error *err)
{
    const merge_step *s = merge_step_at(m, step);
    const merge_shape g = merge_shape_of(m, t);
    double *sums = calloc(g.columns, sizeof *sums);
    float *made = malloc(g.columns * sizeof *made);
    fsdpck_status st = sums == NULL || made == NULL ? error_set_nomem(err, g.columns * sizeof *sums)
                                                    : add_squares(m, t, step, shared, sums, err);
    if (st == FSDPCK_OK)
        st = read_magnitudes(m, s, 0, g.columns, made, err);
    for (uint64_t j = 0; st == FSDPCK_OK && j < g.columns; j++)
        made[j] = factor(made[j], sums[j]);
    free(sums);
    if (st != FSDPCK_OK) {
        free(made);
        made = NULL;
    }
    *factors = made;
    return st;
}

fsdpck_status merge_column_factors(merger *m, const merge_target *t, uint64_t step,
                                   const merge_shared *shared, const float **factors,
                                   fsdpck_error *err)
{
    merge_shared *f = &m->shared[step];
    fsdpck_status st = FSDPCK_OK;
    pthread_mutex_lock(&m->lock);
    while (f->norms_state == NORMS_LOADING)
        pthread_cond_wait(&m->changed_state, &m->lock);
    if (f->norms_state == NORMS_ABSENT) {
        float *made;
        f->norms_state = NORMS_LOADING;
        pthread_mutex_unlock(&m->lock);
        st = compute_columns(m, t, step, shared, &made, err);
        pthread_mutex_lock(&m->lock);
        f->factors = made;
        f->norms_state = st == FSDPCK_OK ? NORMS_READY : NORMS_ABSENT;
        pthread_cond_broadcast(&m->changed_state);
    }
    *factors = f->factors;
    pthread_mutex_unlock(&m->lock);
    return st;
}
