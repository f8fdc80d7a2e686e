/* common_state.h: the state that the ranks of Megatron-Core have in common, a dict: the file common.pt, or in newer
 * releases the object common_state. */
#ifndef FSDPCK_OPEN_COMMON_STATE_H
#define FSDPCK_OPEN_COMMON_STATE_H

#include "open/checkpoint.h"

/* `common` is a value of `pool`, which may end after the call. */
typedef void (*common_state_fn)(void *ctx, value_pool *pool, value common);

/* Calls fn once, if the folder has such a state: *found. */
fsdpck_status common_state_read(fsdpck_checkpoint *of, common_state_fn fn, void *ctx, bool *found,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
