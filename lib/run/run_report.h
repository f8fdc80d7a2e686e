/* run_report.h: the result of a run, from which commands print text and JSON. */
#ifndef FSDPCK_RUN_RUN_REPORT_H
#define FSDPCK_RUN_RUN_REPORT_H

#include "exec/exec.h"
#include "open/checkpoint.h"
#include "plan/plan.h"
#include "run/local_output.h"
#include "run/run_options.h"
#include "run/run_resume.h"
#include "run/sidecars.h"
#include "select/optim_state_map.h"

typedef struct report_input {
    fsdpck_checkpoint *src;
    const char *dst;
    const run_options *opt; /* with the part that was chosen */
    const format_writer *writer;
    const select_result *selected;
    const sidecars *side;
    const target *to;
    const layout *layout; /* of a reshard; else NULL */
    const optim_state_map *optim_state_map;
    const plan *plan;
    const struct exec *exec;
    const local_output *local;
    const run_resume *resume;
    bool has_checksums; /* the source */
} report_input;

fsdpck_status report_make(const report_input *in, fsdpck_report **report,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
