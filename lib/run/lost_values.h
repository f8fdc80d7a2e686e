/* lost_values.h: tensors that a tensor map omits, though the model needs them: the `lose` lines of
 * fsdpck-map(5). */
#ifndef FSDPCK_RUN_LOST_VALUES_H
#define FSDPCK_RUN_LOST_VALUES_H

#include "run/run.h"

/* Collective; a run_check_fn. Warns of those that are not zero (MAP-LOST). */
fsdpck_status lost_values_check(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
