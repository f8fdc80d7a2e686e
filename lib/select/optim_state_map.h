/* optim_state_map.h: which tensors of the model have optimizer state, and how much. A tensor
 * without state among others with state is a buffer or frozen, and gets no gradients.
 *
 *     optim_state_map t;
 *     RETURN_IF(optim_state_map_find(&cat, &parts, &t, err));
 *     if (t.known)
 *         t.itemsize_nbytes[i], t.extra_nbytes[i]     // by tensor of the source
 *     optim_state_map_release(&t);
 */
#ifndef FSDPCK_SELECT_OPTIM_STATE_MAP_H
#define FSDPCK_SELECT_OPTIM_STATE_MAP_H

#include "select/checkpoint_parts.h"

typedef struct optim_state_map {
    bool
        known; /* some optimizer state names its parameter; else the other members are meaningless */
    size_t count;
    uint32_t *itemsize_nbytes; /* of state that has the parameter's shape, for each element */
    uint64_t *extra_nbytes; /* of state of a different shape (Adafactor's rows), without scalars */
    /* States of a different shape whose sharding the source does not record: their number, and the
     * first. */
    uint64_t other_shape_count;
    uint32_t other_shape_first;
    budget *owner;
} optim_state_map;

fsdpck_status optim_state_map_find(const catalogue *c, const checkpoint_parts *parts,
                                   optim_state_map *t, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Also accepts a zeroed struct. */
void optim_state_map_release(optim_state_map *t);
/* Whether tensor i of the source has optimizer state. */
bool optim_state_map_has(const optim_state_map *t, size_t i);

/* The parameter of an optimizer tensor, as a flat key of the model without its outer key; false if
 * unknown (numbered parameters without cat_tensor.param). Paths end in ('state', FQN, name), or,
 * flattened, in 'state.FQN.name' (torch's flatten_optimizer_state_dict). */
bool optim_state_map_param(const catalogue *c, const checkpoint_parts *parts, const cat_tensor *t,
                           text_buf *fqn);

#endif
