/* dcp_object_pickle.c: byte items that are bare pickles, as Megatron writes them. */
#include "formats/common/pickle.h"
#include "formats/common/torch_archive.h"
#include "formats/dcp/dcp_item.h"

typedef struct judged {
    const value_pool *pool;
    bool opaque_calls;
} judged;

static fsdpck_status judge_call(void *ctx, value v, fsdpck_error *err)
{
    const judged *j = ctx;
    const value_pool *pool = j->pool;
    if (value_kind_of(v) != VALUE_CALL)
        return FSDPCK_OK;
    const value_call *call = value_call_of(pool, v);
    if (call->how != CALL_REDUCE || torch_call_is_known(pool, call) ||
        (j->opaque_calls && !torch_callee_runs_code(pool, call->callee)))
        return FSDPCK_OK;
    return dcp_call_check(pool, call, err);
}

fsdpck_status dcp_item_load_pickle(dcp_folder *d, catalogue *cat, uint32_t object,
                                   const dcp_item_bytes *item, bool *is_value, fsdpck_error *err)
{
    const pickle_input in = {.bytes = item->bytes.items,
                             .nbytes = item->bytes.count,
                             .file_offset_bytes = item->base_bytes};
    const pickle_limits limits = PICKLE_LIMITS_DEFAULT;
    value_pool pool;
    size_t consumed_nbytes = 0;
    value root;

    value_pool_init(&pool, d->owner);
    fsdpck_status st = pickle_read(&in, &limits, &pool, NULL, &root, &consumed_nbytes, err);
    *is_value = st == FSDPCK_OK && consumed_nbytes == in.nbytes;
    judged j = {&pool, d->opaque_calls};
    if (*is_value)
        st = value_walk(&pool, root, judge_call, &j, err);
    if (*is_value && st == FSDPCK_OK)
        st =
            value_copy(&pool, root, &cat->pool, NULL, &catalogue_object(cat, object)->content, err);
    else if (!*is_value && st == FSDPCK_BADINPUT)
        st = FSDPCK_OK;
    value_pool_release(&pool);
    return st;
}
