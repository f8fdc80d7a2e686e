/* mesh_infer.h: the way back: from the boxes that a checkpoint holds to a mesh and placements.
 *
 *     explain x;
 *     mesh_infer_init(&x, world_size, &budget);          // 0: not known
 *     for each tensor:
 *         RETURN_IF(mesh_infer_add(&x, cat, tensor, err));   // how its boxes cut each dim
 *     RETURN_IF(mesh_infer_solve(&x, &m, &found, err));   // the mesh that explains most of them
 *     for each tensor:
 *         if (mesh_infer_tensor(&x, tensor, &m, placements)) ...
 *     mesh_infer_release(&x);
 *
 * DCP folders and sharded safetensors record boxes, not meshes. A mesh explains a tensor where some
 * placements on it (physical rule of shard_box.h; also plain Shards left to right) cut it into just the
 * tensor's boxes; replicas count once, empty boxes not at all. Candidates, simplest first:
 *
 *     fsdp=W
 *     dp_replicate=R,dp_shard=W/R            where no tensor has more than W/R boxes
 *     dp_shard=W/T,tp=T
 *     dp_replicate=R,dp_shard=W/(R*T),tp=T
 *     dp_shard=W/E,ep=E  and the others with ep=E in front of tp, where names tell of experts
 *
 * with small R, E and T first. The mesh is the first of those that leave fewest tensors unexplained
 * and, of these, cut fewest without FSDP, which cuts whatever it manages. Tensors that it does not
 * explain have no placements. One dim beside FSDP's is called ep where it cuts nothing but dim 0 of
 * experts ("experts" in their name) and what FSDP cuts by the same dim.
 *
 * A tensor in one whole box is explained by any (replicated; Shard where
 * empty boxes tell of other ranks). What cannot be told: a mesh whose boxes a simpler one explains
 * too (2x2 of FSDP and TP on one and the same dim that divides by 4 is fsdp=4), and ranks that held
 * replicas or nothing.
 *
 * Time is about linear in the chunks (20 to 100 ns each); tensors of one shape and one cut are one pattern.
 */
#ifndef FSDPCK_LAYOUT_MESH_INFER_H
#define FSDPCK_LAYOUT_MESH_INFER_H

#include "layout/layout.h"
#include "state/catalogue.h"

typedef struct explain {
    uint64_t world_size;
    budget *owner;
    strtab digests;     /* of shape and boxes; id: pattern */
    vec patterns;       /* struct mesh_infer_pattern, mesh_infer.c's */
    vec begins;         /* uint64_t: where the pieces of the dims that are cut begin */
    vec by_tensor;      /* uint32_t: pattern; STRTAB_NONE: whole, or not added */
    vec scratch;        /* uint64_t */
    mesh solved;        /* patterns keep their placements on it; ndim 0: none */
    uint64_t otherwise; /* after mesh_infer_solve: tensors that are cut, but not by that mesh */
} explain;

void mesh_infer_init(explain *x, uint64_t world_size, budget *owner);
void mesh_infer_release(explain *x);

/* LIMIT alone: boxes that nothing explains are no error. All tensors of one catalogue. */
fsdpck_status mesh_infer_add(explain *x, const catalogue *c, size_t tensor,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* *found is false where no candidate explains most tensors that are cut; *m is then one dim of world_size (or
 * of the most boxes that any tensor has). */
fsdpck_status mesh_infer_solve(explain *x, mesh *m, bool *found,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Placements of an added tensor on that mesh (or on any other that mesh_check accepts), MESH_NDIM_MAX
 * of them, in their recorded form; false where there are none. */
bool mesh_infer_tensor(const explain *x, size_t tensor, const mesh *m, placement *placements);

#endif
