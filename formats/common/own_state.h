/* own_state.h: state that is each rank's own by its nature: random generators, data loaders, rank numbers, times. */
#ifndef FSDPCK_FORMATS_COMMON_OWN_STATE_H
#define FSDPCK_FORMATS_COMMON_OWN_STATE_H

#include "state/value.h"

/* By the words of the keys that lead to it, a tuple. In a model and its optimizer, only random generators are. */
bool own_state_is(const value_pool *pool, value path, bool of_model);
/* The same by a name with dots between its keys, which may be in a model. */
bool own_state_is_name(const char *name);

#endif
