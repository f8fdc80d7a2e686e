#include "run/run.h"

/* `auto` means threads. A GPU moves S bytes within its memory in 2 S / 4.3 TB/s. But here all data
 * comes from files and goes to files, and crosses a link of 55 GB/s both ways. A thread casts 22
 * GB/s and scatters 2.5 to 6.5 GB/s, so a GPU gains nothing below 20 GB/s of storage. */
fsdpck_status run_check_engine(run *r, fsdpck_error *err)
{
    if (r->opt.work.engine != FSDPCK_ENGINE_GPU || r->gpu != NULL)
        return FSDPCK_OK;
    RETURN_IF(exec_open_gpu(r->ctx->group, &r->gpu, err));
    log_write(&r->ctx->log, LOG_DETAIL, "GPU %u of %u: %s", r->gpu->index, r->gpu->count,
              r->gpu->name);
    return FSDPCK_OK;
}
