/* latest_uncertain.h: checkpoints of a run whose names contain numbers, but no certain step: 'step5best', '10-20', 'v2'. */
#ifndef FSDPCK_VERIFY_LATEST_UNCERTAIN_H
#define FSDPCK_VERIFY_LATEST_UNCERTAIN_H

#include "verify/latest_runs.h"

/* LATEST-NAME: those of l->unnumbered that record a step later than `chosen` (NULL: none), and those whose step is
 * unknown. Not those with `runs`. */
void latest_uncertain_warn(fsdpck_context *ctx, const latest_list *l, const latest_runs *runs,
                           const latest_step *chosen, const fsdpck_open_options *open);

#endif
