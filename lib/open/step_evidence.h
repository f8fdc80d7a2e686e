/* step_evidence.h: the steps that parts of a checkpoint and the files of a trainer's state beside it record. */
#ifndef FSDPCK_OPEN_STEP_EVIDENCE_H
#define FSDPCK_OPEN_STEP_EVIDENCE_H

#include "open/checkpoint.h"

/* Whether they are of two saves: no run of the trainer writes them together. *what: STEP-STATE. Reads the steps of the
 * optimizer's parameters, not other tensors. False if other hosts have files. */
bool step_evidence_differs(fsdpck_checkpoint *c, fsdpck_error *what);
/* Whether a checkpoint of any trainer records one step, also in the name of its folder and in the scheduler, and the
 * optimizer another one: no proof, as trainers count in several ways. *what: STEP-STATE. */
bool step_evidence_is_doubtful(fsdpck_checkpoint *c, fsdpck_error *what);
/* Whether a file of the trainer (*of_trainer), or else an object, records another step than the name of the folder. *what:
 * STEP-NAME. */
bool step_evidence_of_name(fsdpck_checkpoint *c, bool *of_trainer, fsdpck_error *what);
/* Whether fsdpck_get_step gives several steps: less than a doubt. *what: STEP-STATE. */
bool step_evidence_disagrees(fsdpck_checkpoint *c, fsdpck_error *what);
/* step_evidence_differs as a warning, not of DeepSpeed; also the step of the name, and those of ranks (RANK-MIXED). True:
 * a file of the trainer records another step than the name. */
bool step_evidence_warn(fsdpck_checkpoint *c);

/* Whether the steps of the optimizer's parameters show that files of DCP are of two saves: so are then those of the model.
 * *what: NUM-STEP. Reads at most STEP_READS_MAX of them. False if other hosts have files. */
enum { STEP_READS_MAX = 4096 };
bool step_evidence_is_mixed(fsdpck_checkpoint *c, fsdpck_error *what);
/* Where these do not: whether one of the files is a copy of that of another step of the run. *what: NUM-STEP. */
bool step_evidence_is_copied(fsdpck_checkpoint *c, fsdpck_error *what);
/* Whether the optimizer files of DeepSpeed are of another step than its model states. *what: ZERO-STEP.
 * False if other hosts have files. */
bool step_evidence_of_zero(fsdpck_checkpoint *c, fsdpck_error *what);
/* These as warnings, and STEP-STATE of DeepSpeed, whose files of the optimizer have the weights too: of each input of an
 * average. reads_values: else without NUM-STEP, which reads many files. */
void step_evidence_warn_mixed(fsdpck_checkpoint *c, bool reads_values);

#endif
