/* job_parts.h: the options of fsdpck_consolidate and fsdpck_reshard in one struct, for tests that call both.
 *
 *     job_parts o = JOB_PARTS_INIT;
 *     o.sharding.world_size = 2;
 *     st = job_parts_reshard(ctx, src, dst, &o, &report, &err);
 */
#ifndef FSDPCK_TESTS_JOB_PARTS_H
#define FSDPCK_TESTS_JOB_PARTS_H

#include "fsdpck.h"

typedef struct job_parts {
    fsdpck_select_options select;
    fsdpck_sharding_options sharding;
    fsdpck_output_options output;
    fsdpck_work_options work;
    fsdpck_dry_run_options dry_run;
} job_parts;

#define JOB_PARTS_INIT                                                            \
    {                                                                             \
        FSDPCK_SELECT_OPTIONS_INIT, FSDPCK_INIT(fsdpck_sharding_options),         \
            FSDPCK_INIT(fsdpck_output_options), FSDPCK_INIT(fsdpck_work_options), \
            FSDPCK_INIT(fsdpck_dry_run_options)                                   \
    }

static inline fsdpck_status job_parts_consolidate(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                                  const char *dst, const job_parts *o,
                                                  fsdpck_report **report, fsdpck_error *err)
{
    const fsdpck_consolidate_options all = {.struct_nbytes = sizeof all,
                                            .select = &o->select,
                                            .output = &o->output,
                                            .work = &o->work,
                                            .dry_run = &o->dry_run};
    return fsdpck_consolidate(ctx, src, dst, &all, report, err);
}

static inline fsdpck_status job_parts_reshard(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                              const char *dst, const job_parts *o,
                                              fsdpck_report **report, fsdpck_error *err)
{
    const fsdpck_reshard_options all = {.struct_nbytes = sizeof all,
                                        .select = &o->select,
                                        .sharding = &o->sharding,
                                        .output = &o->output,
                                        .work = &o->work,
                                        .dry_run = &o->dry_run};
    return fsdpck_reshard(ctx, src, dst, &all, report, err);
}

#endif
