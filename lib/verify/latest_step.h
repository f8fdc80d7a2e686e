/* latest_step.h: a step of a run: the number in its name, and whether it is complete. */
#ifndef FSDPCK_VERIFY_LATEST_STEP_H
#define FSDPCK_VERIFY_LATEST_STEP_H

#include "base/step_name.h"
#include "fsdpck_verify.h"
#include "verify/resume_state.h"

typedef struct latest_step {
    char *path;
    step_name name;
    const char *other_model; /* path of a later candidate with this number and a model; or NULL */
    const char
        *copy_of; /* path of the step that its name is a copy of (latest_copies.h); or NULL */
    bool
        is_run; /* a run's folder: it contains steps, and the number in its name is not one of them */
    int64_t recorded_step; /* of one that was found complete: that of its files; -1: unknown */
    bool takes_cut;        /* WEIGHTS-CUT is a warning: no older step is complete */
    bool is_recorded;      /* name.step is of its files: the name has none (latest_recorded.h) */
} latest_step;

/* Not one that its name marks as unfinished, or whose order is unknown. */
bool latest_step_may_count(const latest_step *c);

/* Whether the failure is unrelated to the checkpoint: a stale mount, a missing permission, no
 * memory. A missing file is the checkpoint's failure. */
bool latest_step_is_unknown(fsdpck_status st, const fsdpck_error *why);

/* A folder of several checkpoints (actor and critic) is complete when all of them are. Sets c->is_run.
 * state: receives that of the step; NULL: not needed. */
fsdpck_status latest_step_check(fsdpck_context *ctx, latest_step *c, const fsdpck_latest_options *o,
                                resume_state *state, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* For list[at], which is complete and contains `state`; older steps follow it. Steps of the same number
 * without a model, such as optim_100.pt beside model_100.pt, are parts of it: adds their state. BADINPUT
 * (LATEST-STATE) if another of this number, or an older one, is complete and contains state that this one
 * lacks. Also CANCELLED and INTERNAL. */
fsdpck_status latest_step_compare(fsdpck_context *ctx, latest_step *list, size_t count, size_t at,
                                  resume_state *state, const fsdpck_latest_options *o,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
