/* weights_names.h: names of files that have weights. */
#ifndef FSDPCK_OPEN_WEIGHTS_NAMES_H
#define FSDPCK_OPEN_WEIGHTS_NAMES_H

#include <stdbool.h>

/* In one of several forms: those of transformers, diffusers, torch, Meta and DeepSpeed. */
bool checkpoint_is_weights_name(const char *name);
/* A file of torch.save with a rank's number, under any name, except the state of random generators
 * and optimizers, which often lies beside exported weights. */
bool checkpoint_is_rank_name(const char *name);
/* Of TensorFlow, Keras, Flax and others, which are not opened. */
bool checkpoint_is_foreign_name(const char *name);

#endif
