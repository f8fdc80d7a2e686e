#include "run.h"

fsdpck_status fsdpck_consolidate(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                                 const fsdpck_transform_options *options, fsdpck_report **report,
                                 fsdpck_error *err)
{
    run r;
    if (report != NULL)
        *report = NULL;
    run_init(&r, ctx, src, options);
    r.dst = dst;
    const fsdpck_status st = run_all(&r, report, err);
    progress_phase(&ctx->progress, NULL, 0);
    run_release(&r);
    return st;
}
