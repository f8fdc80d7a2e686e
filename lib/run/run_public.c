#include "run/average_inputs_check.h"
#include "run/like_ties.h"
#include "run/lost_values.h"
#include "run/tied_head.h"

static fsdpck_status check_consolidated(run *r, fsdpck_error *err)
{
    RETURN_IF(average_inputs_check(r, err));
    RETURN_IF(tied_head_compare(r, err));
    return lost_values_check(r, err);
}

static fsdpck_status check_resharded(run *r, fsdpck_error *err)
{
    RETURN_IF(average_inputs_check(r, err));
    return lost_values_check(r, err);
}

fsdpck_status fsdpck_consolidate(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                                 const fsdpck_consolidate_options *options, fsdpck_report **report,
                                 fsdpck_error *err)
{
    run_options o;
    if (report != NULL)
        *report = NULL;
    RETURN_IF(run_options_of_consolidate(&o, options, err));
    const run_checks checks = {.before = like_ties_prepare, .planned = check_consolidated};
    return run_transform(ctx, src, dst, &o, false, &checks, report, err);
}

fsdpck_status fsdpck_reshard(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                             const fsdpck_reshard_options *options, fsdpck_report **report,
                             fsdpck_error *err)
{
    run_options o;
    if (report != NULL)
        *report = NULL;
    RETURN_IF(run_options_of_reshard(&o, options, err));
    const run_checks checks = {.planned = check_resharded};
    return run_transform(ctx, src, dst, &o, true, &checks, report, err);
}
