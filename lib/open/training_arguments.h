/* training_arguments.h: the arguments of the training run that a folder of Megatron-Core contains: an
 * object with attributes, under the key 'args' of common.pt or of the object common_state. */
#ifndef FSDPCK_OPEN_TRAINING_ARGUMENTS_H
#define FSDPCK_OPEN_TRAINING_ARGUMENTS_H

#include "map/map.h"
#include "open/checkpoint.h"

typedef void (*arguments_fn)(void *ctx, const value_pool *pool, value arguments);

/* Calls fn with the dict of the arguments, if `of` has any. */
fsdpck_status training_arguments_visit(fsdpck_checkpoint *of, arguments_fn fn, void *ctx,
                                       fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Takes the arguments of `of`, if it has any, for the variables of the map. The error, if they cannot
 * be read, concerns a run only if it needs one of them. */
fsdpck_status training_arguments_take(fsdpck_checkpoint *of, tensor_map *m,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
