/* mesh_infer.h: infers a mesh and placements from the boxes of a checkpoint.
 *
 *     explain x;
 *     mesh_infer_init(&x, world_size, &budget);          // 0: unknown
 *     RETURN_IF(mesh_infer_add(&x, cat, nthreads, cancel, err));   // intervals of all boxes per dim
 *     RETURN_IF(mesh_infer_solve(&x, &m, &found, err));   // the mesh that explains most of them
 *     for each tensor:
 *         if (mesh_infer_tensor(&x, tensor, &m, placements)) ...
 *     mesh_infer_release(&x);
 *
 * DCP folders and sharded safetensors record boxes, not meshes. A mesh explains a tensor if some
 * placements on it (physical rule of shard_box.h; also plain Shards left to right) give exactly the
 * tensor's boxes; replicas count once, empty boxes are ignored. Candidates, simplest first:
 *
 *     fsdp=W
 *     dp_replicate=R,dp_shard=W/R            if no tensor has more than W/R boxes
 *     dp_shard=W/T,tp=T
 *     dp_replicate=R,dp_shard=W/(R*T),tp=T
 *     dp_shard=W/E,ep=E  and the others with ep=E in front of tp, if names contain experts
 *
 * with small R, E and T first. The result is the first mesh with the fewest unexplained tensors
 * and, among these, the fewest tensors sharded without FSDP (FSDP shards all tensors that it
 * manages). Unexplained tensors have no placements. One dim next to FSDP's is named ep if it shards
 * nothing but dim 0 of experts ("experts" in their name) and tensors that FSDP shards along the
 * same dim.
 *
 * A tensor in one whole box is explained by any mesh (replicated; Shard if empty boxes show other
 * ranks). Not detectable: a mesh whose boxes a simpler one also explains (2x2 of FSDP and TP on the
 * same dim, divisible by 4, is fsdp=4), and ranks with only replicas or nothing.
 *
 * Time is about linear in the chunks (20 to 100 ns each); tensors with equal shape and boxes share
 * one pattern.
 */
#ifndef FSDPCK_LAYOUT_MESH_INFER_H
#define FSDPCK_LAYOUT_MESH_INFER_H

#include "base/pool.h"
#include "layout/layout.h"
#include "state/catalogue.h"

typedef struct explain {
    uint64_t world_size;
    budget *owner;
    strtab digests;     /* of shape and boxes; id: pattern */
    vec patterns;       /* struct mesh_infer_pattern, mesh_infer.c's */
    vec begins;         /* uint64_t: start offsets of the parts of split dims */
    vec by_tensor;      /* uint32_t: pattern; STRTAB_NONE: whole, or not added */
    vec scratch;        /* uint64_t */
    mesh solved;        /* patterns keep their placements on it; ndim 0: none */
    uint64_t otherwise; /* after mesh_infer_solve: sharded tensors that the mesh does not explain */
} explain;

void mesh_infer_init(explain *x, uint64_t world_size, budget *owner);
void mesh_infer_release(explain *x);

/* Adds all tensors; the threads share the passes over their boxes. cancel: may be NULL. Fails only
 * with LIMIT or CANCELLED: unexplained boxes are no error. Call it once. */
fsdpck_status mesh_infer_add(explain *x, const catalogue *c, unsigned nthreads,
                             const cancel_token *cancel, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* *found is false if no candidate explains most of the sharded tensors; *m is then one dim of
 * world_size (or of the largest number of boxes of any tensor). */
fsdpck_status mesh_infer_solve(explain *x, mesh *m, bool *found,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Placements of an added tensor on that mesh (or on any other that mesh_check accepts),
 * MESH_NDIM_MAX of them, in their recorded form; false if it has none. */
bool mesh_infer_tensor(const explain *x, size_t tensor, const mesh *m, placement *placements);

#endif
