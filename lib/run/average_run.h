/* average_run.h: what a run does for an average besides converting it: checks of each input, and the distances
 * that all ranks found. */
#ifndef FSDPCK_RUN_AVERAGE_RUN_H
#define FSDPCK_RUN_AVERAGE_RUN_H

#include "run/run.h"

/* Collective, before data is read: compares each input with its manifest (MAN-MISSING, MAN-SIZE), and the
 * replicas of the selected tensors as --replicas requests (REPLICA-DIFFER). */
fsdpck_status average_run_check(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Collective, after data was read: all ranks get the largest distances. */
fsdpck_status average_run_share_distances(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
