/* diff_norms.c: norms of tensors that differ in some parts only. */
#include "compare/diff.h"

#include <string.h>

typedef struct equal_parts {
    fsdpck_diff *d;
    vec sums; /* change_sums, parallel to d->pairs */
} equal_parts;

static bool lacks_parts(const fsdpck_diff *d, size_t pair)
{
    const diff_pair *p = VEC_AT(&d->pairs, const diff_pair, pair);
    const uint32_t tensor = VEC_AT(&d->common.list, const tensor_pair, pair)->a;
    return p->stats.differing > 0 && p->sums.n > 0 &&
           p->sums.n < catalogue_tensor_nelems(&d->a.to.cat, tensor);
}

static bool is_wanted(void *ctx, size_t pair)
{
    const equal_parts *e = ctx;
    return lacks_parts(e->d, pair);
}

/* The same parts as in the first walk. */
static void add_equal_part(void *ctx, unsigned worker, const pair_elements *e)
{
    equal_parts *all = ctx;
    fsdpck_diff *d = all->d;
    const uint32_t tensor = VEC_AT(&d->common.list, const tensor_pair, e->pair)->a;
    const dtype type = (dtype)catalogue_tensor(&d->a.to.cat, tensor)->dtype;
    change_sums sums = {0};
    (void)worker;
    if (!lacks_parts(d, e->pair) ||
        memcmp(e->a, e->b, e->count * dtype_get(type)->itemsize_bytes) != 0)
        return;
    change_sums_add_elements(type, e->a, e->a, e->count, &sums);
    pthread_mutex_lock(&d->lock);
    change_sums_add(VEC_AT(&all->sums, change_sums, e->pair), &sums);
    pthread_mutex_unlock(&d->lock);
}

static fsdpck_status receive_sums(void *ctx, unsigned rank, const uint8_t *bytes, uint64_t nbytes,
                                  fsdpck_error *err)
{
    fsdpck_diff *d = ctx;
    (void)rank;
    (void)err;
    for (uint64_t at = 0; at < nbytes; at += sizeof(change_sums)) {
        change_sums one;
        memcpy(&one, bytes + at, sizeof one);
        change_sums_add(&VEC_AT(&d->pairs, diff_pair, at / sizeof one)->sums, &one);
    }
    return FSDPCK_OK;
}

static fsdpck_status walk_equal_parts(equal_parts *e, fsdpck_error *err)
{
    for (size_t i = 0; i < e->d->pairs.count; i++)
        RETURN_IF(vec_add(&e->sums, &(change_sums){0}, err));
    return tensor_pairs_walk_some(&e->d->common, "norms", is_wanted, add_equal_part, e, err);
}

fsdpck_status diff_norms_finish(fsdpck_diff *d, fsdpck_error *err)
{
    equal_parts e = {.d = d, .sums = VEC_OF(change_sums, &d->a.src->metadata)};
    bool any = false;
    for (size_t i = 0; i < d->pairs.count; i++)
        any = any || lacks_parts(d, i);
    if (!any) /* on all ranks */
        return FSDPCK_OK;
    fsdpck_status st = walk_equal_parts(&e, err);
    if (d->a.ctx->group != NULL)
        st = group_all_gather(d->a.ctx->group, st, e.sums.items, e.sums.count * sizeof(change_sums),
                              receive_sums, d, err);
    else if (st == FSDPCK_OK)
        st = receive_sums(d, 0, e.sums.items, e.sums.count * sizeof(change_sums), err);
    vec_release(&e.sums);
    return st;
}
