/* copied_file.h: whether a file of a step is a copy of that of another step beside it:
 * "run/checkpoint-20/optimizer_0/__1_0.distcp" of "run/checkpoint-10/optimizer_0/__1_0.distcp". */
#ifndef FSDPCK_OPEN_COPIED_FILE_H
#define FSDPCK_OPEN_COPIED_FILE_H

#include "open/checkpoint.h"

/* Of a checkpoint in several files: whether one with the steps of parameters, or with shards of their state, is a copy of
 * that of another step, and the other file is not: the steps are then of another save than the state. *what: NUM-STEP.
 * Reads files up to the first difference, and the other checkpoint if there is a copy. */
bool copied_file_is_mixed(fsdpck_checkpoint *c, fsdpck_error *what);

#endif
