/* model_type.h: the model type ("llama") in config.json of a checkpoint. */
#ifndef FSDPCK_OPEN_MODEL_TYPE_H
#define FSDPCK_OPEN_MODEL_TYPE_H

#include "open/checkpoint.h"

/* Of config.json beside the weights, or in the trainer's folder for it; "" for none. */
fsdpck_status model_type_read(const fsdpck_checkpoint *c, char type[64], fsdpck_error *err);

/* An error about tensors that differ from those of `like`: if the types differ, they come first in its message, and its
 * next step is about them. */
void model_type_name_other(const fsdpck_checkpoint *of, const fsdpck_checkpoint *like,
                           fsdpck_error *err);

#endif
