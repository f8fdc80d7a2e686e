/* average_slerp.c: spherical interpolation of two inputs, as mergekit 0.1.5 defines it: each tensor is one
 * vector. The sums are those of the chunks in their order, so they do not depend on the threads. */
#include <math.h>
#include <stdlib.h>

#include "average/average_internal.h"

/* Vectors whose cosine is beyond this are interpolated linearly. */
#define SLERP_COSINE_MAX 0.9995
/* Vectors whose norm is not above this are not divided by it. */
#define SLERP_NORM_MIN 1e-8

struct average_slerp_sums {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t next, done; /* chunks: taken, and finished */
    fsdpck_status status;
    fsdpck_error error;
    double (*sums)[3]; /* by chunk */
};

fsdpck_status average_slerp_new(average_tensor *t, fsdpck_error *err)
{
    struct average_slerp_sums *p = t->slerp = calloc(1, sizeof *p);
    if (p == NULL)
        return error_set_nomem(err, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->sums = calloc(t->nchunks, sizeof *p->sums);
    return p->sums == NULL ? error_set_nomem(err, t->nchunks * sizeof *p->sums) : FSDPCK_OK;
}

void average_slerp_free(average_tensor *t)
{
    struct average_slerp_sums *p = t->slerp;
    if (p == NULL)
        return;
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    free(p->sums);
    free(p);
    t->slerp = NULL;
}

static fsdpck_status sum_bands(average_reader *r, average_sum *sum, double *sums, fsdpck_error *err)
{
    const uint64_t size = dtype_get(sum->type)->itemsize_bytes;
    const uint8_t *const *bands;
    uint64_t n;
    for (;;) {
        RETURN_IF(average_reader_next(r, &bands, &n, err));
        if (n == 0)
            return average_reader_finish(r, err);
        averager_add_further_nbytes((averager *)r->v, n * r->itemsize * r->v->count);
        n *= r->itemsize / size;
        for (uint64_t at = 0; at < n; at += AVERAGE_BLOCK) {
            const uint8_t *const from[2] = {bands[0] + at * size, bands[1] + at * size};
            size_t culprit;
            if (!average_sum_products(sum, from, n - at < AVERAGE_BLOCK ? n - at : AVERAGE_BLOCK,
                                      sums, &culprit))
                return average_fail_special(r->v, r->t, culprit, err);
        }
    }
}

static fsdpck_status sum_chunk(const averager *v, const average_tensor *t, uint64_t k,
                               fsdpck_error *err)
{
    const dtype d = (dtype)catalogue_tensor(v->out, t->tensor)->dtype;
    static const uint64_t zeros[NDIM_MAX];
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    average_reader r;
    average_sum sum = {0};
    catalogue_chunk_box(v->out, t->first_chunk + k, offsets, sizes);
    fsdpck_status st = average_reader_open(&r, v, t->first_chunk + k, zeros, sizes, err);
    if (st == FSDPCK_OK)
        st = average_sum_init(&sum, &v->rule, v->count, d, err);
    if (st == FSDPCK_OK)
        st = sum_bands(&r, &sum, t->slerp->sums[k], err);
    average_sum_release(&sum);
    average_reader_close(&r, false);
    return st;
}

/* False if the sums overflow. */
static bool find_factors(const averager *v, const average_tensor *t, double *factors)
{
    const double x = v->rule.slerp_t;
    double sums[3] = {0};
    for (uint64_t k = 0; k < t->nchunks; k++)
        for (int i = 0; i < 3; i++)
            sums[i] += t->slerp->sums[k][i];
    if (!isfinite(sums[0]) || !isfinite(sums[1]) || !isfinite(sums[2]))
        return false;
    const double a = sqrt(sums[0]), b = sqrt(sums[2]);
    const double cosine =
        fmin(fmax(sums[1] / (a > SLERP_NORM_MIN ? a : 1) / (b > SLERP_NORM_MIN ? b : 1), -1), 1);
    factors[0] = 1 - x;
    factors[1] = x;
    if (fabs(cosine) > SLERP_COSINE_MAX)
        return true;
    const double angle = acos(cosine);
    factors[0] = sin((1 - x) * angle) / sin(angle);
    factors[1] = sin(x * angle) / sin(angle);
    return true;
}

fsdpck_status average_slerp_factors(const averager *v, const average_tensor *t, double *factors,
                                    fsdpck_error *err)
{
    struct average_slerp_sums *p = t->slerp;
    pthread_mutex_lock(&p->lock);
    while (p->next < t->nchunks && p->status == FSDPCK_OK) {
        const uint64_t k = p->next++;
        fsdpck_error local = FSDPCK_ERROR_INIT;
        pthread_mutex_unlock(&p->lock);
        const fsdpck_status st = sum_chunk(v, t, k, &local);
        pthread_mutex_lock(&p->lock);
        p->done++;
        if (st != FSDPCK_OK && p->status == FSDPCK_OK) {
            p->status = st;
            p->error = local;
        }
        pthread_cond_broadcast(&p->changed);
    }
    while (p->done < p->next)
        pthread_cond_wait(&p->changed, &p->lock);
    const fsdpck_status st = p->status;
    if (st != FSDPCK_OK && err != NULL)
        *err = p->error;
    pthread_mutex_unlock(&p->lock);
    if (st == FSDPCK_OK && !find_factors(v, t, factors))
        return average_fail_special(v, t, v->count, err);
    return st;
}
