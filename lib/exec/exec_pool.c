/* The threads of a run. */
#include "exec/exec_internal.h"

fsdpck_status exec_pool_run(const struct exec *x, unsigned nworkers, uint64_t njobs, pool_job_fn fn,
                            void *ctx, const cancel_token *cancel, fsdpck_error *err)
{
    return pool_run_deep(x->engine->stack_nbytes, nworkers, njobs, fn, ctx, cancel, err);
}
