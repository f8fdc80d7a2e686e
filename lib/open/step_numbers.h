/* step_numbers.h: tensors and objects that contain a number of steps: of the trainer, or of the optimizer's state. */
#ifndef FSDPCK_OPEN_STEP_NUMBERS_H
#define FSDPCK_OPEN_STEP_NUMBERS_H

#include "open/checkpoint.h"

/* Keys of the trainer's step, such as "global_step", the most reliable first; NULL after the last. */
const char *step_key_at(size_t index);
bool step_is_key(const char *name, size_t nbytes);
/* "optim.state.w.step" */
bool step_is_of_optimizer(const fsdpck_checkpoint *c, uint64_t tensor);
/* -1: not one element, or no number of steps. */
int64_t step_number_of(const fsdpck_checkpoint *c, uint64_t tensor);
/* Of an object that is a whole number; -1: it is none. */
int64_t step_object_number(fsdpck_checkpoint *c, uint32_t object);
/* Warns (RANK-MIXED) if ranks that saved without collectives have different steps. */
void step_numbers_warn_mixed(const fsdpck_checkpoint *c);

#endif
