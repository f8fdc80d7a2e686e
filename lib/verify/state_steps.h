/* state_steps.h: whether the files of a trainer's state beside the weights are of one step, and complete. */
#ifndef FSDPCK_VERIFY_STATE_STEPS_H
#define FSDPCK_VERIFY_STATE_STEPS_H

#include "open/checkpoint.h"

/* Whether the folder of a trainer_state.json has a scheduler.pt and nothing of the optimizer, or an optimizer (optimizer.pt,
 * optimizer.bin, optimizer_0/) and no scheduler.pt: transformers' Trainer writes both or neither, and loads neither if one is missing.
 * Or a folder of accelerate's save_state has a scheduler.bin and no optimizer. *what: STATE-PAIR. */
bool state_pair_is_lost(fsdpck_checkpoint *c, fsdpck_error *what);

/* The path of the first file of the optimizer or the scheduler, from number *index on, that has the content of another kind;
 * NULL: none. *what: STATE-KIND. *index is set to the number after it. */
const char *state_kind_differs(fsdpck_checkpoint *c, size_t *index, fsdpck_error *what);

#endif
