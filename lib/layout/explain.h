/* explain.h: the way back: from the boxes that a checkpoint holds to a mesh and placements.
 *
 *     explain x;
 *     explain_init(&x, world_size, &budget);         // 0: not known
 *     for each tensor:
 *         RETURN_IF(explain_add(&x, cat, tensor, err));   // looks at its boxes, keeps how each dim is cut
 *     RETURN_IF(explain_mesh(&x, &m, &found, err));       // the simplest mesh that explains all of them
 *     for each tensor:
 *         explain_tensor(&x, cat, tensor, &m, placements, &found);
 *
 * DCP folders and sharded safetensors record boxes, not meshes. Candidates, simplest first: one dim
 * of all ranks (fsdp=W); replicate x shard where no tensor has more than W/R boxes (HSDP); fsdp x tp
 * where tensors are cut on two dims, or on one dim into pieces that only a mesh of two explains;
 * replicate x fsdp x tp. A candidate explains a tensor where the boxes of all its ranks (physical
 * rule) are, as a set, the tensor's boxes. Tensors in one whole box are replicated.
 */
#ifndef FSDPCK_LAYOUT_EXPLAIN_H
#define FSDPCK_LAYOUT_EXPLAIN_H

#include "layout/layout.h"
#include "state/catalogue.h"

typedef struct explain {
    uint64_t world_size;
    budget *owner;
    vec shapes; /* distinct (shape, cuts) patterns seen; many tensors share one */
} explain;

void explain_init(explain *x, uint64_t world_size, budget *owner);
void explain_release(explain *x);
fsdpck_status explain_add(explain *x, const catalogue *c, size_t tensor,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;
/* *found is false where no candidate explains every pattern; *m is then one dim of world_size (or
 * of the most boxes that any tensor has). */
fsdpck_status explain_mesh(const explain *x, mesh *m, bool *found, fsdpck_error *err)
    FSDPCK_MUST_CHECK;
/* Placements of one tensor on that mesh; false where there are none. */
bool explain_tensor(const catalogue *c, size_t tensor, const mesh *m, placement *placements);

#endif
