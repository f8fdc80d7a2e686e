/* average_inputs_check.h: checks of the inputs of an average, before a run reads data. */
#ifndef FSDPCK_RUN_AVERAGE_INPUTS_CHECK_H
#define FSDPCK_RUN_AVERAGE_INPUTS_CHECK_H

#include "run/run.h"

/* A run_check_fn, which does nothing without an average. Compares each input with its manifest (MAN-MISSING,
 * MAN-SIZE), and the replicas of the selected tensors as --replicas requests (REPLICA-DIFFER). */
fsdpck_status average_inputs_check(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
