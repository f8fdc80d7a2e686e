/* slice.h: the mesh dims that a tensor's own mesh lacks.
 *
 *     RETURN_IF(layout_get_placements(&l, &tensor, any_size, spec.placements, err));
 *     spec.absent_dims = layout_absent_dims(&l, &tensor);
 *     ...
 *     mesh_slice s;
 *     mesh_slice_of(catalogue_mesh(cat, spec.mesh), &spec, &s);
 *
 * In torch a parameter becomes a DTensor on the tp (or ep) dim if parallelize_module's plan names
 * its module; fully_shard then shards it on the joined mesh. A parameter outside the plan is a
 * plain tensor until fully_shard shards it on its own mesh: a slice of the root mesh, without tp
 * (torch 2.5 to 2.15). DTensors on different meshes do not mix (copy_ fails), so files must use the
 * same slice as the program that loads them.
 */
#ifndef FSDPCK_LAYOUT_SLICE_H
#define FSDPCK_LAYOUT_SLICE_H

#include "layout/layout.h"

/* Bit i for each dim of l->mesh that the tensor's own mesh lacks: tp and ep dims, if a plan does
 * not name the tensor, or, without a plan, if the source's mesh of it has no such dim; others, if
 * the source's mesh lacks them. Only dims over which the tensor is replicated count. All bits are
 * set if no dim remains: the tensor is then not a DTensor. 0 for meshes with unknown dim names. No
 * rule is counted as used. */
uint8_t layout_absent_dims(const layout *l, const layout_tensor *t);

typedef struct mesh_slice {
    mesh m;                       /* the remaining dims, in order */
    unsigned dims[MESH_NDIM_MAX]; /* their indices in the root mesh */
    placement placements[MESH_NDIM_MAX];
} mesh_slice;

/* The mesh of a spec's tensor, with its placements there; root itself if no dim is absent.
 * spec->absent_dims must leave at least one dim. */
void mesh_slice_of(const mesh *root, const cat_spec *spec, mesh_slice *s);

/* Maps `from`, a spec on mesh `own`, to `root` by the names of the dims; spec->mesh is unchanged.
 * False if root lacks one of these dims. */
bool mesh_slice_widen(const mesh *root, const mesh *own, const cat_spec *from, cat_spec *spec);

#endif
