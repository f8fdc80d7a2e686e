#include "job_options.h"

void job_options_init(job_options *job)
{
    *job = (job_options){.select = FSDPCK_SELECT_OPTIONS_INIT,
                         .sharding = FSDPCK_INIT(fsdpck_sharding_options),
                         .output = FSDPCK_INIT(fsdpck_output_options),
                         .work = FSDPCK_INIT(fsdpck_work_options),
                         .dry_run = FSDPCK_INIT(fsdpck_dry_run_options)};
}

fsdpck_status job_consolidate(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                              const job_options *job, fsdpck_report **report, fsdpck_error *err)
{
    const fsdpck_consolidate_options options = {.struct_nbytes = sizeof options,
                                                .select = &job->select,
                                                .output = &job->output,
                                                .work = &job->work,
                                                .dry_run = &job->dry_run};
    return fsdpck_consolidate(ctx, src, dst, &options, report, err);
}

fsdpck_status job_reshard(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                          const job_options *job, fsdpck_report **report, fsdpck_error *err)
{
    const fsdpck_reshard_options options = {.struct_nbytes = sizeof options,
                                            .select = &job->select,
                                            .sharding = &job->sharding,
                                            .output = &job->output,
                                            .work = &job->work,
                                            .dry_run = &job->dry_run};
    return fsdpck_reshard(ctx, src, dst, &options, report, err);
}

fsdpck_status job_layout(fsdpck_context *ctx, fsdpck_checkpoint *src, const job_options *job,
                         fsdpck_layout **out, fsdpck_error *err)
{
    const fsdpck_layout_options options = {.struct_nbytes = sizeof options,
                                           .select = &job->select,
                                           .sharding = &job->sharding,
                                           .output = &job->output};
    return fsdpck_layout_new(ctx, src, &options, out, err);
}

fsdpck_status job_digests(fsdpck_context *ctx, fsdpck_checkpoint *src, const job_options *job,
                          fsdpck_digests **out, fsdpck_error *err)
{
    const fsdpck_digest_options options = {
        .struct_nbytes = sizeof options, .select = &job->select, .work = &job->work};
    return fsdpck_digests_new(ctx, src, &options, out, err);
}
