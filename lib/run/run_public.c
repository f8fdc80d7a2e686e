#include "run/tied_head.h"

fsdpck_status fsdpck_consolidate(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                                 const fsdpck_consolidate_options *options, fsdpck_report **report,
                                 fsdpck_error *err)
{
    run_options o;
    if (report != NULL)
        *report = NULL;
    RETURN_IF(run_options_of_consolidate(&o, options, err));
    return run_transform(ctx, src, dst, &o, false, tied_head_compare, report, err);
}

fsdpck_status fsdpck_reshard(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                             const fsdpck_reshard_options *options, fsdpck_report **report,
                             fsdpck_error *err)
{
    run_options o;
    if (report != NULL)
        *report = NULL;
    RETURN_IF(run_options_of_reshard(&o, options, err));
    return run_transform(ctx, src, dst, &o, true, NULL, report, err);
}
