/* DTensors and ShardedTensors in a state. All other tensor subclasses are resolved or refused while
 * the pickle is read. */
#include "formats/common/pt_flatten.h"

bool pt_is_sharded(const value_pool *pool, value v)
{
    const value_call *call = value_call_of(pool, v);
    return call != NULL && value_is_symbol_named(pool, call->callee, "_rebuild_from_type_v2");
}

static fsdpck_status refuse(void *ctx, value v, fsdpck_error *err)
{
    const value_pool *pool = ctx;
    if (!pt_is_sharded(pool, v))
        return FSDPCK_OK;
    return FAIL_WITH(err, UNSUPPORTED, PT_TENSOR_KIND,
                     ("a DTensor or ShardedTensor inside an object holds only one rank's shard of "
                      "a tensor"),
                     (next, "save the tensor as the value of a dict key instead, or call "
                            "full_tensor() before saving"));
}

fsdpck_status pt_refuse_sharded(const value_pool *pool, value v, fsdpck_error *err)
{
    return value_walk(pool, v, refuse, (void *)pool, err);
}
