/* job_options.h: all parts of the library's options, by value, and the jobs that take them.
 *
 *     job_options job;
 *     job_options_init(&job);
 *     job.sharding.world_size = 8;
 *     st = job_reshard(ctx, src, dst, &job, &report, &err);
 */
#ifndef FSDPCK_CLI_JOB_OPTIONS_H
#define FSDPCK_CLI_JOB_OPTIONS_H

#include "fsdpck.h"

/* Each job takes the parts that it has. */
typedef struct job_options {
    fsdpck_select_options select;
    fsdpck_sharding_options sharding;
    fsdpck_output_options output;
    fsdpck_work_options work;
    fsdpck_dry_run_options dry_run;
} job_options;

/* All defaults. */
void job_options_init(job_options *job);

/* fsdpck_consolidate, fsdpck_reshard, fsdpck_layout_new and fsdpck_digests_new. */
fsdpck_status job_consolidate(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                              const job_options *job, fsdpck_report **report,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status job_reshard(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                          const job_options *job, fsdpck_report **report,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status job_layout(fsdpck_context *ctx, fsdpck_checkpoint *src, const job_options *job,
                         fsdpck_layout **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status job_digests(fsdpck_context *ctx, fsdpck_checkpoint *src, const job_options *job,
                          fsdpck_digests **out, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
