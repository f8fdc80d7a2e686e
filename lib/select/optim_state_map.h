/* optim_state_map.h: which tensors of the model have optimizer state, and how much: what has none, where
 * others have, is a buffer (or frozen) and gets no gradients.
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
    bool known; /* some optimizer state names its parameter; else the rest says nothing */
    size_t count;
    uint32_t *itemsize_nbytes; /* of state that has the parameter's shape, for each element */
    uint64_t *extra_nbytes;    /* of state of another shape (Adafactor's rows), scalars left out */
    /* States of another shape in a source that does not say how they are cut; the first of them. */
    uint64_t other_shape_count;
    uint32_t other_shape_first;
    budget *owner;
} optim_state_map;

fsdpck_status optim_state_map_find(const catalogue *c, const checkpoint_parts *parts,
                                   optim_state_map *t, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Also of a zeroed one. */
void optim_state_map_release(optim_state_map *t);
/* Whether tensor i of the source has optimizer state. */
bool optim_state_map_has(const optim_state_map *t, size_t i);

/* The parameter that an optimizer tensor belongs to, as a flat key of the model without its outer
 * key; false where it cannot be told (parameters by number, unless cat_tensor.param says it). Paths end in ('state', FQN, name), or,
 * flattened, in 'state.FQN.name' (torch's flatten_optimizer_state_dict). */
bool optim_state_map_param(const catalogue *c, const checkpoint_parts *parts, const cat_tensor *t,
                           text_buf *fqn);

#endif
