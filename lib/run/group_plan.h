/* group_plan.h: predicted work of each rank of a group, for the report of a dry run. */
#ifndef FSDPCK_RUN_GROUP_PLAN_H
#define FSDPCK_RUN_GROUP_PLAN_H

#include "exec/exec.h"
#include "run/run_options.h"

/* *out and its ranks are malloc's. USAGE where there are more hosts than ranks. */
fsdpck_status group_plan_make(const struct exec *x, const run_options *options,
                              const fsdpck_group_plan **out, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
