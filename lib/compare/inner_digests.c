/* Digests of tensors inside objects. Such tensors have no names, so objects are compared with
 * digests in their place. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crc.h"
#include "compare/digest.h"

/* Of each tensor of the catalogue, whether an object holds it. */
typedef struct inner_tensors {
    uint8_t *is_held;
    uint64_t count;
} inner_tensors;

static fsdpck_status visit(void *ctx, value v, fsdpck_error *err)
{
    const inner_tensors *t = ctx;
    (void)err;
    if (value_kind_of(v) == VALUE_TENSOR && !t->is_held[value_tensor_index(v)]) {
        t->is_held[value_tensor_index(v)] = 1;
        ((inner_tensors *)ctx)->count++;
    }
    return FSDPCK_OK;
}

static fsdpck_status find_inner(const catalogue *c, inner_tensors *t, fsdpck_error *err)
{
    t->is_held = calloc(catalogue_tensor_count(c) + 1, 1);
    if (t->is_held == NULL)
        return error_set_nomem(err, catalogue_tensor_count(c));
    for (uint64_t i = 0; i < catalogue_tensor_count(c); i++) {
        t->is_held[i] = (catalogue_tensor(c, i)->flags & CAT_TENSOR_IN_OBJECT) != 0;
        t->count += t->is_held[i];
    }
    for (uint64_t i = 0; i < catalogue_object_count(c); i++)
        if (catalogue_object(c, i)->loaded && !catalogue_object(c, i)->opaque)
            RETURN_IF(value_walk(&c->pool, catalogue_object(c, i)->content, visit, t, err));
    return FSDPCK_OK;
}

/* One target tensor for each. */
static fsdpck_status select_all(const catalogue *c, const inner_tensors *inner, target *to,
                                fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];
    const cat_chunk proto = {.file = CAT_NONE, .rank = UINT16_MAX, .place = LOCATION_ROWS};
    for (uint64_t i = 0; i < catalogue_tensor_count(c); i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        if (!inner->is_held[i])
            continue;
        char name[24];
        uint32_t index;
        const int nbytes = snprintf(name, sizeof name, "%" PRIu64, i);
        RETURN_IF(catalogue_add_tensor(&to->cat, name, (size_t)nbytes, (dtype)t->dtype, t->ndim,
                                       catalogue_shape(c, i), &index, err));
        RETURN_IF(catalogue_add_chunk(&to->cat, index, zeros, catalogue_shape(c, i), &proto, err));
        RETURN_IF(vec_add(&to->from, &(uint32_t){(uint32_t)i}, err));
    }
    return catalogue_seal(&to->cat, err);
}

static fsdpck_status prepare(run *r, const inner_tensors *inner, fsdpck_error *err)
{
    RETURN_IF(select_all(&r->src->cat, inner, &r->to, err));
    RETURN_IF(digest_lay_out(&r->to, NULL, err));
    return run_make_plan(r, err);
}

static fsdpck_status run_digests(run *r, const inner_tensors *inner, fsdpck_error *err)
{
    RETURN_IF(run_agree_on_plan(r, prepare(r, inner, err), GROUP_STOPS, err));
    RETURN_IF(group_agree(r->ctx->group, run_resolve(r, err), err));
    RETURN_IF(exec_assign_work(r->exec, true, FSDPCK_OK, err));
    return exec_run(r->exec, NULL, err);
}

fsdpck_status digest_inner(fsdpck_context *ctx, fsdpck_checkpoint *src, const run_options *options,
                           uint64_t *digests, fsdpck_error *err)
{
    inner_tensors inner = {0};
    run r;
    fsdpck_status st = group_agree(ctx->group, find_inner(&src->cat, &inner, err), err);
    if (st != FSDPCK_OK || inner.count == 0) {
        free(inner.is_held);
        return st;
    }
    run_init(&r, ctx, src, options);
    r.opt.output.direct = FSDPCK_OFF;
    st = run_digests(&r, &inner, err);
    for (uint64_t i = 0; st == FSDPCK_OK && i < catalogue_tensor_count(&r.to.cat); i++) {
        const cat_tensor *t = catalogue_tensor(&r.to.cat, i);
        uint64_t crc = crc64_update(0, &t->dtype, sizeof t->dtype);
        crc = crc64_update(crc, catalogue_shape(&r.to.cat, i), t->ndim * sizeof(uint64_t));
        uint64_t elements;
        st = target_tensor_crc(&r.to, i, &elements, err);
        crc = crc64_join(crc, elements, catalogue_tensor_nbytes(&r.to.cat, i));
        digests[*VEC_AT(&r.to.from, const uint32_t, i)] = crc;
    }
    run_release(&r);
    free(inner.is_held);
    return st;
}
