/* group_plan.h: predicted work of each rank of a group, for the report of a dry run. */
#ifndef FSDPCK_RUN_GROUP_PLAN_H
#define FSDPCK_RUN_GROUP_PLAN_H

#include "exec/exec.h"
#include "fsdpck.h"

/* *out and its ranks are to be freed. USAGE if hosts outnumber ranks. */
fsdpck_status group_plan_make(const struct exec *x, const fsdpck_transform_options *options,
                              const fsdpck_group_plan **out, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
