#include "compare/nearness.h"

#include <string.h>

#include "compare/near_streams.h"
#include "run/digest_run.h"

/* ---- which tensors ---- */

static bool is_float(dtype d)
{
    widener w;
    return dtype_get(d)->kind == DTYPE_IS_FLOAT && widener_init(&w, d);
}

/* Quantized on one side only: without its scales, an 8-bit float is another number. */
static bool is_quantized_once(dtype a, dtype b)
{
    return (dtype_get(a)->itemsize_bytes == 1) != (dtype_get(b)->itemsize_bytes == 1);
}

static fsdpck_status add_pair(nearness *n, uint32_t a, uint32_t b, fsdpck_error *err)
{
    cat_tensor *x = catalogue_tensor(&n->a.to.cat, a), *y = catalogue_tensor(&n->b.to.cat, b);
    const near_tensor one = {.tensor = *VEC_AT(&n->a.to.from, const uint32_t, a)};
    if (!is_float((dtype)x->dtype) || !is_float((dtype)y->dtype) ||
        is_quantized_once((dtype)x->dtype, (dtype)y->dtype)) {
        n->other_tensors++;
        return FSDPCK_OK;
    }
    if (x->dtype != y->dtype)
        x->dtype = y->dtype = DTYPE_FLOAT32;
    RETURN_IF(tensor_pairs_add(&n->common, a, b, err));
    return vec_add(&n->found, &one, err);
}

static fsdpck_status match_tensors(nearness *n, fsdpck_error *err)
{
    const catalogue *a = &n->a.to.cat, *b = &n->b.to.cat;
    for (uint32_t i = 0; i < catalogue_tensor_count(a); i++) {
        const cat_tensor *x = catalogue_tensor(a, i);
        const uint32_t k =
            catalogue_find(b, catalogue_name(a, x->name), catalogue_name_nbytes(a, x->name));
        if (k != CAT_NONE && shape_equal(catalogue_shape(a, i), x->ndim, catalogue_shape(b, k),
                                         catalogue_tensor(b, k)->ndim))
            RETURN_IF(add_pair(n, i, k, err));
    }
    return FSDPCK_OK;
}

/* ---- sums ---- */

static void add_elements(void *ctx, unsigned worker, const pair_elements *e)
{
    nearness *n = ctx;
    near_tensor *t = VEC_AT(&n->found, near_tensor, e->pair);
    const uint32_t tensor = VEC_AT(&n->common.list, const tensor_pair, e->pair)->a;
    cosine_sums sums = {0};
    widener w;
    (void)worker;
    if (t->is_streamed || !widener_init(&w, (dtype)catalogue_tensor(&n->a.to.cat, tensor)->dtype))
        return;
    cosine_sums_add_elements(&w, &w, e->a, e->b, e->count, &sums);
    if (catalogue_tensor(&n->a.to.cat, tensor)->ndim == 1)
        cosine_sums_add_difference(&w, &w, e->a, e->b, e->count, &sums);
    pthread_mutex_lock(&n->lock);
    cosine_sums_add(&t->sums, &sums);
    pthread_mutex_unlock(&n->lock);
}

static fsdpck_status receive_sums(void *ctx, unsigned rank, const uint8_t *bytes, uint64_t nbytes,
                                  fsdpck_error *err)
{
    nearness *n = ctx;
    (void)rank;
    (void)err;
    for (uint64_t at = 0; at < nbytes; at += sizeof(cosine_sums)) {
        cosine_sums one;
        memcpy(&one, bytes + at, sizeof one);
        cosine_sums_add(&VEC_AT(&n->found, near_tensor, at / sizeof one)->sums, &one);
    }
    return FSDPCK_OK;
}

/* Adds the sums of all ranks, on each of them. */
static fsdpck_status all_reduce_sums(nearness *n, fsdpck_status st, fsdpck_error *err)
{
    text_buf bytes = {.limit_bytes = SIZE_MAX / 2};
    if (n->a.ctx->group == NULL)
        return st;
    for (size_t i = 0; i < n->found.count; i++) {
        near_tensor *t = VEC_AT(&n->found, near_tensor, i);
        text_append(&bytes, (const char *)&t->sums, sizeof t->sums);
        t->sums = (cosine_sums){0};
    }
    if (st == FSDPCK_OK)
        st = text_check(&bytes, err);
    st = group_all_gather(n->a.ctx->group, st, GROUP_STOPS, bytes.text, bytes.nbytes, receive_sums,
                          n, err);
    text_release(&bytes);
    return st;
}

static fsdpck_status add_all(nearness *n, vec *streams, fsdpck_error *err)
{
    RETURN_IF(near_streams_list(n, streams, err));
    RETURN_IF(tensor_pairs_walk(&n->common, "comparing with --like", add_elements, n,
                                &n->a.ctx->cancel, err));
    return near_streams_measure(n, streams, err);
}

static fsdpck_status measure(nearness *n, fsdpck_error *err)
{
    vec streams = VEC_OF(near_stream, &n->a.src->metadata);
    RETURN_IF(tensor_pairs_assign(&n->common, err));
    const fsdpck_status st = add_all(n, &streams, err);
    vec_release(&streams);
    RETURN_IF(all_reduce_sums(n, st, err));
    return group_agree(n->a.ctx->group, tensor_pairs_check_unchanged(&n->common, err), err);
}

/* ---- all of it ---- */

static fsdpck_status select_side(run *r, fsdpck_error *err)
{
    const fsdpck_status st = digest_select(r, err);
    if (st != FSDPCK_OK)
        error_path(err, r->src->path);
    return st;
}

static fsdpck_status prepare(nearness *n, fsdpck_error *err)
{
    RETURN_IF(select_side(&n->a, err));
    RETURN_IF(select_side(&n->b, err));
    tensor_pairs_share_memory(&n->common);
    RETURN_IF(match_tensors(n, err));
    return tensor_pairs_plan(&n->common, err);
}

void nearness_init(nearness *n, fsdpck_checkpoint *a, fsdpck_checkpoint *b,
                   const fsdpck_work_options *work)
{
    run_options o;
    run_options_init(&o);
    o.work = *work;
    o.select.objects = FSDPCK_OBJECTS_DROP;
    o.select.replicas = FSDPCK_REPLICAS_FIRST; /* others compare them */
    *n = (nearness){.found = VEC_OF(near_tensor, &a->metadata)};
    run_init(&n->a, a->ctx, a, &o);
    run_init(&n->b, b->ctx, b, &o);
    n->a.dst = n->b.dst = "";
    tensor_pairs_init(&n->common, &n->a, &n->b);
    pthread_mutex_init(&n->lock, NULL);
}

fsdpck_status nearness_measure(nearness *n, fsdpck_error *err)
{
    group *g = n->a.ctx->group;
    RETURN_IF(run_agree_on_plan(&n->a, prepare(n, err), GROUP_GOES_ON, err));
    RETURN_IF(group_agree_result(g, tensor_pairs_resolve(&n->common, err), true, err));
    return measure(n, err);
}

void nearness_release(nearness *n)
{
    vec_release(&n->found);
    tensor_pairs_release(&n->common);
    pthread_mutex_destroy(&n->lock);
    run_release(&n->a);
    run_release(&n->b);
}
