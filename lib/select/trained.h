/* trained.h: which tensors of the model have optimizer state, and how much: what has none, where
 * others have, is a buffer (or frozen) and gets no gradients.
 *
 *     trained t;
 *     RETURN_IF(trained_find(&cat, &parts, &t, err));
 *     if (t.known)
 *         t.itemsize_nbytes[i], t.more_nbytes[i]     // by tensor of the source
 *     trained_release(&t);
 */
#ifndef FSDPCK_SELECT_TRAINED_H
#define FSDPCK_SELECT_TRAINED_H

#include "select/parts.h"

typedef struct trained {
    bool known; /* some optimizer state names its parameter; else the rest says nothing */
    size_t count;
    uint32_t *itemsize_nbytes; /* of state that has the parameter's shape, for each element */
    uint64_t *more_nbytes;     /* of state of another shape (Adafactor's rows), scalars left out */
    /* States of another shape in a source that does not say how they are cut; the first of them. */
    uint64_t odd_count;
    uint32_t odd_first;
    budget *owner;
} trained;

fsdpck_status trained_find(const catalogue *c, const aim_parts *parts, trained *t,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Also of a zeroed one. */
void trained_release(trained *t);
/* Whether tensor i of the source has optimizer state. */
bool trained_has(const trained *t, size_t i);

/* The parameter that an optimizer tensor belongs to, as a flat key of the model without its outer
 * key; false where it cannot be told (parameters by number, unless cat_tensor.param says it). Paths end in ('state', FQN, name), or,
 * flattened, in 'state.FQN.name' (torch's flatten_optimizer_state_dict). */
bool trained_parameter(const catalogue *c, const aim_parts *parts, const cat_tensor *t,
                       text_buf *fqn);

#endif
