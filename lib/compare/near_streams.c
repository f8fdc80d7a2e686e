#include "compare/near_streams.h"

#include <stdlib.h>

#include "group/group.h"

/* Elements are compared by no more than this at a time. */
#define STEP_NBYTES ((uint64_t)1 << 20)

typedef struct stream_jobs {
    nearness *n;
    const vec *list;
} stream_jobs;

/* ---- which chunks ---- */

static const catalogue *source_of(const nearness *n)
{
    return &n->b.src->cat;
}

static uint32_t source_tensor(const nearness *n, size_t pair)
{
    return *VEC_AT(&n->b.to.from, const uint32_t, VEC_AT(&n->common.list, tensor_pair, pair)->b);
}

static uint64_t chunk_nelems(const catalogue *c, uint64_t chunk)
{
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(c, chunk, NULL, sizes);
    return box_nelems(sizes, catalogue_tensor(c, catalogue_chunk(c, chunk)->tensor)->ndim);
}

/* Whether the elements of a chunk are consecutive in its tensor. */
static bool is_run(const catalogue *c, uint64_t chunk)
{
    const uint32_t tensor = catalogue_chunk(c, chunk)->tensor;
    const unsigned ndim = catalogue_tensor(c, tensor)->ndim;
    uint64_t sizes[NDIM_MAX];
    unsigned d = 0;
    catalogue_chunk_box(c, chunk, NULL, sizes);
    while (d < ndim && sizes[d] == 1)
        d++;
    return d == ndim || shape_equal(sizes + d + 1, ndim - d - 1, catalogue_shape(c, tensor) + d + 1,
                                    ndim - d - 1);
}

static uint64_t first_element(const catalogue *c, uint64_t chunk)
{
    const uint32_t tensor = catalogue_chunk(c, chunk)->tensor;
    const unsigned ndim = catalogue_tensor(c, tensor)->ndim;
    uint64_t offsets[NDIM_MAX], strides[NDIM_MAX], first = 0;
    catalogue_chunk_box(c, chunk, offsets, NULL);
    box_row_major_strides(catalogue_shape(c, tensor), ndim, strides);
    for (unsigned d = 0; d < ndim; d++)
        first += offsets[d] * strides[d];
    return first;
}

/* Whether each element is in one chunk, which is a stream of consecutive elements. */
static fsdpck_status is_readable(const nearness *n, size_t pair, bool *readable, fsdpck_error *err)
{
    const catalogue *c = source_of(n);
    const source *from = &n->b.src->src;
    const uint32_t tensor = source_tensor(n, pair);
    const cat_tensor *t = catalogue_tensor(c, tensor);
    const uint32_t of_target = VEC_AT(&n->common.list, tensor_pair, pair)->b;
    uint64_t nelems = 0;
    *readable =
        shape_equal(catalogue_shape(c, tensor), t->ndim, catalogue_shape(&n->b.to.cat, of_target),
                    catalogue_tensor(&n->b.to.cat, of_target)->ndim);
    for (uint64_t k = t->first_chunk; *readable && k < t->first_chunk + t->nchunks; k++) {
        place where;
        if (chunk_nelems(c, k) == 0)
            continue;
        nelems += chunk_nelems(c, k);
        RETURN_IF(from->locate(from->ctx, k, &where, err));
        *readable = is_run(c, k) && where.stream && where.rows && where.offset_bytes == 0 &&
                    !where.swap && !where.neg && !where.conj && where.add == 0;
    }
    *readable = *readable && nelems == catalogue_tensor_nelems(c, tensor);
    return FSDPCK_OK;
}

static fsdpck_status add_jobs(const nearness *n, size_t pair, uint64_t *count, vec *jobs,
                              fsdpck_error *err)
{
    const group *g = n->a.ctx->group;
    const cat_tensor *t = catalogue_tensor(source_of(n), source_tensor(n, pair));
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        const near_stream job = {.pair = pair, .chunk = k};
        if (chunk_nelems(source_of(n), k) > 0 && (*count)++ % group_size(g) == group_rank(g))
            RETURN_IF(vec_add(jobs, &job, err));
    }
    return FSDPCK_OK;
}

fsdpck_status near_streams_list(nearness *n, vec *jobs, fsdpck_error *err)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n->found.count; i++) {
        near_tensor *t = VEC_AT(&n->found, near_tensor, i);
        bool readable = false;
        t->is_streamed = tensor_pairs_is_streamed(&n->common, i);
        if (t->is_streamed &&
            !exec_is_streamed(n->a.exec, VEC_AT(&n->common.list, tensor_pair, i)->a))
            RETURN_IF(is_readable(n, i, &readable, err));
        t->is_unread = t->is_streamed && !readable;
        if (readable)
            RETURN_IF(add_jobs(n, i, &count, jobs, err));
    }
    return FSDPCK_OK;
}

/* ---- sums ---- */

typedef struct stream_reader {
    const nearness *n;
    unsigned worker;
    size_t pair;
    source_stream *stream;
    widener of_a, of_b;
    uint8_t *bytes; /* of the stream */
    cosine_sums sums;
} stream_reader;

/* The next `count` elements of the stream, from `first` of the tensor on. */
static fsdpck_status add_elements(stream_reader *r, uint64_t first, uint64_t count,
                                  fsdpck_error *err)
{
    const tensor_pairs *p = &r->n->common;
    const uint64_t nbytes = p->fill_nbytes < STEP_NBYTES ? p->fill_nbytes : STEP_NBYTES;
    const uint64_t step = nbytes / sizeof(double);
    for (uint64_t at = 0; at < count; at += step) {
        const uint64_t some = count - at < step ? count - at : step;
        const uint8_t *a;
        RETURN_IF(cancel_check(&r->n->a.ctx->cancel, err));
        RETURN_IF(tensor_pairs_fill(p, r->worker, r->pair, false,
                                    (first + at) * r->of_a.number_nbytes,
                                    some * r->of_a.number_nbytes, &a, err));
        RETURN_IF(
            r->n->b.src->src.stream_read(r->stream, r->bytes, some * r->of_b.number_nbytes, err));
        cosine_sums_add_elements(&r->of_a, &r->of_b, a, r->bytes, some, &r->sums);
        progress_add(&r->n->a.ctx->progress, some * r->of_b.number_nbytes);
    }
    return FSDPCK_OK;
}

static fsdpck_status read_stream(stream_reader *r, uint64_t chunk, fsdpck_error *err)
{
    const source *from = &r->n->b.src->src;
    RETURN_IF(from->stream_open(from->ctx, chunk, &r->stream, err));
    fsdpck_status st = add_elements(r, first_element(source_of(r->n), chunk),
                                    chunk_nelems(source_of(r->n), chunk), err);
    if (st == FSDPCK_OK)
        st = from->stream_finish(r->stream, err);
    from->stream_close(r->stream);
    return st;
}

static fsdpck_status measure_job(void *ctx, unsigned worker, uint64_t index, fsdpck_error *err)
{
    const stream_jobs *s = ctx;
    nearness *n = s->n;
    const near_stream *job = VEC_AT(s->list, const near_stream, index);
    const uint32_t a = VEC_AT(&n->common.list, tensor_pair, job->pair)->a;
    const dtype of_b = (dtype)catalogue_tensor(source_of(n), source_tensor(n, job->pair))->dtype;
    stream_reader r = {.n = n, .worker = worker, .pair = job->pair};
    if (!widener_init(&r.of_a, (dtype)catalogue_tensor(&n->a.to.cat, a)->dtype) ||
        !widener_init(&r.of_b, of_b))
        return FAIL(err, INTERNAL, NONE, "dtype without cosine");
    if ((r.bytes = malloc(STEP_NBYTES)) == NULL)
        return error_set_nomem(err, STEP_NBYTES);
    const fsdpck_status st = read_stream(&r, job->chunk, err);
    free(r.bytes);
    if (st != FSDPCK_OK)
        return st;
    pthread_mutex_lock(&n->lock);
    cosine_sums_add(&VEC_AT(&n->found, near_tensor, job->pair)->sums, &r.sums);
    pthread_mutex_unlock(&n->lock);
    return FSDPCK_OK;
}

fsdpck_status near_streams_measure(nearness *n, const vec *jobs, fsdpck_error *err)
{
    const source *from = &n->b.src->src;
    stream_jobs s = {.n = n, .list = jobs};
    uint64_t nbytes = 0, most = 1;
    for (size_t i = 0; i < jobs->count; i++) {
        const near_stream *job = VEC_AT(jobs, const near_stream, i);
        const uint64_t one =
            from->stream_nbytes == NULL ? 0 : from->stream_nbytes(from->ctx, job->chunk);
        most = one > most ? one : most;
        nbytes += catalogue_chunk(source_of(n), job->chunk)->nbytes;
    }
    if (jobs->count == 0)
        return FSDPCK_OK;
    const uint64_t fit = run_memory_nbytes(&n->b) / 2 / most; /* as in a conversion */
    const unsigned workers = fit < n->common.workers ? (unsigned)fit : n->common.workers;
    progress_phase(&n->a.ctx->progress, "decoding --like", nbytes);
    return pool_run(workers > 0 ? workers : 1, jobs->count, measure_job, &s, &n->a.ctx->cancel,
                    err);
}
