/* state_shapes.h: optimizer state that contradicts the model of the same checkpoint, by its shapes or names. */
#ifndef FSDPCK_OPEN_STATE_SHAPES_H
#define FSDPCK_OPEN_STATE_SHAPES_H

#include "open/checkpoint.h"

/* Warns, without a description of the model:
 * RANK-FLAT if state keyed by number has the form of one rank's shards of FSDP1: moments of one dim, and no tensor has as
 * many elements as one of them. Flattened state of the whole model, as fairseq has it, does not fit this.
 * MODEL-OPTIM if state keyed by name has another shape than the parameter of this name. States other than those of torch's
 * Adam and SGD are not judged, nor are quantized ones.
 * MODEL-OPTIM too if no tensor has the name of a parameter with such state. */
void state_shapes_warn(const fsdpck_checkpoint *c);

#endif
