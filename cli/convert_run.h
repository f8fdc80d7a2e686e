/* convert_run.h: the common steps of consolidate, reshard and layout: open the inputs of the request,
 * call the library, report. */
#ifndef FSDPCK_CLI_CONVERT_RUN_H
#define FSDPCK_CLI_CONVERT_RUN_H

#include "command_options.h"

/* The opened inputs of a request. convert_inputs_release frees them, after a failure too. */
typedef struct convert_inputs {
    fsdpck_checkpoint *src, *like, *base;
    fsdpck_checkpoint **averaged; /* average: the inputs of `src`, then its --base */
    size_t averaged_count;
    fsdpck_info info; /* of src */
    char *tp_plan;
    job_options options; /* the request's, with tp_plan and like; borrows from both */
} convert_inputs;

fsdpck_status convert_inputs_open(const cli *c, const command_request *r, convert_inputs *in,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
void convert_inputs_release(convert_inputs *in);

/* The call of the library. */
typedef fsdpck_status (*convert_api_fn)(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                        const char *dst, const job_options *options,
                                        fsdpck_report **report, fsdpck_error *err);

/* fsdpck_reshard, with all options. */
fsdpck_status convert_reshard(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                              const job_options *job, fsdpck_report **report, fsdpck_error *err);

/* Opens, calls and reports. Returns the exit code. */
int convert_run(cli *c, const command_request *r, convert_api_fn call);

#endif
