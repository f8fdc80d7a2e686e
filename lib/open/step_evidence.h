/* step_evidence.h: the steps that parts of a checkpoint and the files of a trainer's state beside it record. */
#ifndef FSDPCK_OPEN_STEP_EVIDENCE_H
#define FSDPCK_OPEN_STEP_EVIDENCE_H

#include "open/checkpoint.h"

/* Whether they are of two saves: no run of the trainer writes them together. *what: STEP-STATE. Reads the steps of the
 * optimizer's parameters, not other tensors. Ranks of a group, which may have other files on their hosts: false. */
bool step_evidence_differs(fsdpck_checkpoint *c, fsdpck_error *what);
/* That as a warning. */
void step_evidence_warn(fsdpck_checkpoint *c);

#endif
