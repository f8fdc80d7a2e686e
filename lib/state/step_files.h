/* step_files.h: steps of the optimizer: torch keeps one for each parameter.
 *
 * Frozen parameters, and experts without tokens, have fewer steps. Files of two saves show in another way.
 * All ranks have the same step of a parameter, and torch.distributed.checkpoint writes it into the file of one rank,
 * whichever has less to write. Files of another save then have another step for these parameters, whatever their
 * modules are. With two or three ranks these may be all weights, or all but the first parameter: kinds of names do not
 * explain the steps. */
#ifndef FSDPCK_STATE_STEP_FILES_H
#define FSDPCK_STATE_STEP_FILES_H

#include "base/alloc.h"
#include "state/catalogue.h"

/* Parameters of the same step. */
typedef struct step_group {
    double step;
    uint64_t tensors, first; /* first: the tensor */
} step_group;

typedef struct step_files {
    uint64_t files;       /* that have steps */
    size_t steps;         /* different ones; with less than 2, the following is unset */
    bool is_mixture;      /* of files of two saves */
    step_group most, odd; /* of the most parameters, and another */
} step_files;

/* Whether the tensor is the step of a parameter, by its name, dtype and size. */
bool step_files_is_step(const catalogue *cat, uint64_t tensor);
/* Other state of the same parameter, such as "exp_avg", by number; CAT_NONE: no more. */
uint32_t step_files_state(const catalogue *cat, uint64_t tensor, size_t index);
/* The step in such a tensor; false: unknown. */
typedef bool (*step_of_fn)(void *ctx, uint64_t tensor, double *step);
fsdpck_status step_files_judge(const catalogue *cat, step_of_fn get, void *ctx, budget *memory,
                               step_files *out, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of f->steps > 1. *what: NUM-STEP. */
void step_files_describe(const catalogue *cat, const step_files *f, fsdpck_error *what);

#endif
