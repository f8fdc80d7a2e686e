/* latest_runs.h: folders of runs below the folder that was given: '_actor' and '_critic' of OpenRLHF, 'v0-20260101-101010'
 * of ms-swift, 'lightning_logs/version_0/checkpoints'. */
#ifndef FSDPCK_VERIFY_LATEST_RUNS_H
#define FSDPCK_VERIFY_LATEST_RUNS_H

#include "verify/latest_list.h"

/* A file, a checkpoint, or a folder that contains one. */
bool latest_runs_is_checkpoint(const char *path);

typedef struct latest_run {
    char *path;
    step_name newest; /* of its steps, by their names; not checked */
} latest_run;

typedef struct latest_runs {
    vec list; /* latest_run, in the order of their paths */
} latest_runs;

/* A folder is one if it contains a checkpoint with a word for the step in its name. The steps of the folder itself are
 * not searched. */
fsdpck_status latest_runs_find(latest_runs *r, const char *root,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether `path` is one of them, or contains one. */
bool latest_runs_has(const latest_runs *r, const char *path);
/* LATEST-RUNS: all of them if chosen is NULL, otherwise those that contain a later step. */
void latest_runs_warn(const latest_runs *r, const char *root, const latest_step *chosen,
                      const logger *log);
void latest_runs_release(latest_runs *r);

#endif
