/* slice.h: which mesh dims a tensor's own mesh leaves out.
 *
 *     RETURN_IF(layout_get_placements(&l, &tensor, any_size, spec.placements, err));
 *     spec.absent_dims = layout_absent_dims(&l, &tensor);
 *     ...
 *     mesh_slice s;
 *     mesh_slice_of(catalogue_mesh(cat, spec.mesh), &spec, &s);
 *
 * In torch a parameter becomes a DTensor on the tp (or ep) dim where parallelize_module's plan names
 * its module; fully_shard then cuts it on the joined mesh. One that no plan names is a plain tensor
 * until fully_shard cuts it, on the mesh that it was given alone: a slice of the root mesh, without
 * tp (torch 2.5 to 2.15). DTensors on different meshes do not mix (copy_ fails), so what loads such
 * files must find the same slice.
 */
#ifndef FSDPCK_LAYOUT_SLICE_H
#define FSDPCK_LAYOUT_SLICE_H

#include "layout/layout.h"

/* Bit i for each dim of l->mesh that the tensor's own mesh does not have: tp and ep dims, where a
 * plan does not name the tensor, or, without a plan, where the source's mesh of it has no such dim;
 * others, where the source's leaves them out. Only those count over which the tensor is replicated.
 * All of them where no dim is left: the tensor is then no DTensor. 0 for meshes whose dims have
 * unknown names. No rule is counted as used. */
uint8_t layout_absent_dims(const layout *l, const layout_tensor *t);

typedef struct mesh_slice {
    mesh m;                       /* the dims that are left, in their order */
    unsigned dims[MESH_NDIM_MAX]; /* which of the root's they are */
    placement placements[MESH_NDIM_MAX];
} mesh_slice;

/* The mesh on which a spec's tensor lives, with its placements there; root itself where no dim is
 * absent. spec->absent_dims leaves at least one dim. */
void mesh_slice_of(const mesh *root, const cat_spec *spec, mesh_slice *s);

/* What `from` says of mesh `own`, said of `root`, by the names of the dims; spec->mesh is not
 * touched. False where root does not have such dims. */
bool mesh_slice_widen(const mesh *root, const mesh *own, const cat_spec *from, cat_spec *spec);

#endif
