/* Digests of tensors inside objects: nobody's names are theirs, so objects that hold them are compared
 * with their digests in their place. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "compare/digest.h"

static bool is_inner(const catalogue *c, uint64_t tensor)
{
    return (catalogue_tensor(c, tensor)->flags & CAT_TENSOR_IN_OBJECT) != 0;
}

/* One target tensor for each. */
static fsdpck_status aim_all(const catalogue *c, target *to, fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];
    const cat_chunk proto = {.file = CAT_NONE, .rank = UINT16_MAX, .place = PLACE_ROWS};
    for (uint64_t i = 0; i < catalogue_tensor_count(c); i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        if (!is_inner(c, i))
            continue;
        char name[24];
        uint32_t index;
        const int nbytes = snprintf(name, sizeof name, "%" PRIu64, i);
        RETURN_IF(catalogue_add_tensor(&to->cat, name, (size_t)nbytes, (dtype)t->dtype, t->ndim,
                                       catalogue_shape(c, i), &index, err));
        RETURN_IF(catalogue_add_chunk(&to->cat, index, zeros, catalogue_shape(c, i), &proto, err));
        uint32_t *from = vec_push(&to->from, err);
        if (from == NULL)
            return FSDPCK_LIMIT;
        *from = (uint32_t)i;
    }
    return catalogue_seal(&to->cat, err);
}

static fsdpck_status prepare(run *r, fsdpck_error *err)
{
    RETURN_IF(aim_all(&r->src->cat, &r->to, err));
    RETURN_IF(digest_give_places(&r->to, NULL, err));
    return run_make_plan(r, err);
}

static fsdpck_status run_all_of_them(run *r, fsdpck_error *err)
{
    RETURN_IF(group_agree(r->ctx->group, prepare(r, err), err));
    RETURN_IF(run_same_plan(r, err));
    RETURN_IF(group_agree(r->ctx->group, run_locate(r, err), err));
    RETURN_IF(exec_share_work(r->exec, true, err));
    return exec_run(r->exec, NULL, err);
}

fsdpck_status digest_inner(fsdpck_context *ctx, fsdpck_checkpoint *src,
                           const fsdpck_transform_options *options, uint64_t *digests,
                           fsdpck_error *err)
{
    uint64_t first = 0;
    run r;
    while (first < catalogue_tensor_count(&src->cat) && !is_inner(&src->cat, first))
        first++;
    if (first == catalogue_tensor_count(&src->cat))
        return FSDPCK_OK;
    run_init(&r, ctx, src, options);
    r.opt.direct = FSDPCK_OFF;
    fsdpck_status st = run_all_of_them(&r, err);
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
    return st;
}
