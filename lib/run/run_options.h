/* run_options.h: the options of all jobs in one struct, each part complete, whatever the caller gave.
 *
 *     run_options o;
 *     st = run_options_of_reshard(&o, options, err); // options may be NULL
 *     run_init(&r, ctx, src, &o);
 */
#ifndef FSDPCK_RUN_RUN_OPTIONS_H
#define FSDPCK_RUN_RUN_OPTIONS_H

#include "fsdpck.h"
#include "fsdpck_load.h"

/* Of a job without one of the parts, that part has its defaults. */
typedef struct run_options {
    fsdpck_select_options select;
    fsdpck_sharding_options sharding;
    fsdpck_output_options output;
    fsdpck_work_options work;
    fsdpck_dry_run_options dry_run;
    fsdpck_checkpoint *like; /* of consolidate; NULL: none */
} run_options;

/* All defaults. */
void run_options_init(run_options *o);

/* Copies the parts that are not NULL over defaults. Errors: USAGE (a struct that is not initialized, a
 * value out of range). */
fsdpck_status run_options_of_consolidate(run_options *o, const fsdpck_consolidate_options *from,
                                         fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status run_options_of_reshard(run_options *o, const fsdpck_reshard_options *from,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status run_options_of_layout(run_options *o, const fsdpck_layout_options *from,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status run_options_of_digest(run_options *o, const fsdpck_digest_options *from,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status run_options_of_load(run_options *o, const fsdpck_load_options *from,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status run_options_of_diff(run_options *o, const fsdpck_diff_options *from,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
