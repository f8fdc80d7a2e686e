/* trainer_name.h: the program that wrote a checkpoint, as inspect names it. */
#ifndef FSDPCK_OPEN_TRAINER_NAME_H
#define FSDPCK_OPEN_TRAINER_NAME_H

#include "open/checkpoint.h"

/* What the reader found, else by the files beside the weights and by outer keys. "": unknown. Valid as long as `c`. */
const char *checkpoint_trainer(const fsdpck_checkpoint *c);

#endif
