/* Tidies the catalogue after the merge of all ranks: tensors that were left out, slices of a mesh. */
#include <string.h>

#include "formats/pt/ranks_internal.h"
#include "layout/mesh_text.h"

/* Removes tensors that were left out, before other code depends on the tensor numbers. */
static fsdpck_status compact(ranks_state *s, fsdpck_error *err)
{
    catalogue *cat = s->cat;
    const size_t count = cat->tensors.count;
    uint32_t *moved = budget_alloc(s->req->metadata, count * sizeof *moved, err);
    uint32_t n = 0;

    if (moved == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < s->tensors.count; i++) {
        const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, i);
        if (t->dropped && t->kind == RANKS_PLAIN)
            moved[t->index] = CAT_NONE;
    }
    for (size_t i = 0; i < count; i++) {
        if (moved[i] == CAT_NONE)
            continue;
        *catalogue_tensor(cat, n) = *catalogue_tensor(cat, i);
        moved[i] = n++;
    }
    cat->tensors.count = n;
    for (size_t i = 0; i < cat->chunks.count; i++)
        catalogue_chunk(cat, i)->tensor = moved[catalogue_chunk(cat, i)->tensor];
    budget_free(s->req->metadata, moved, count * sizeof *moved);
    return FSDPCK_OK;
}

/* Names of the lowest rank come first, in its order; the others follow. */
static void mark_joined(ranks_state *s)
{
    for (size_t i = 0; i < s->tensors.count; i++) {
        const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, i);
        if (t->kind != RANKS_OBJECT && t->index != CAT_NONE)
            catalogue_tensor(s->cat, t->index)->joined = ranks_is_joined(s, t);
    }
}

/* Whether every dim of m is one of `whole`, by name and size, in order; at[i] is its position
 * there. */
static bool is_slice(const mesh *m, const mesh *whole, unsigned *at)
{
    unsigned k = 0;
    for (unsigned i = 0; i < m->ndim; i++) {
        while (k < whole->ndim && strcmp(m->names[i], whole->names[k]) != 0)
            k++;
        if (m->names[i][0] == '\0' || k == whole->ndim || m->sizes[i] != whole->sizes[k])
            return false;
        at[i] = k++;
    }
    return true;
}

/* The spec of a tensor on the slice `old.mesh`, converted to the mesh of `largest` ranks that
 * contains the slice; false if there is none. */
static bool lift_spec(const catalogue *cat, const cat_spec *old, uint64_t largest, cat_spec *lifted)
{
    const mesh *m = catalogue_mesh(cat, old->mesh);
    unsigned at[MESH_NDIM_MAX];

    for (uint32_t i = 0; mesh_size(m) < largest && i < cat->meshes.count; i++) {
        const mesh *whole = catalogue_mesh(cat, i);
        if (mesh_size(whole) != largest || !is_slice(m, whole, at))
            continue;
        *lifted = (cat_spec){.mesh = i, .absent_dims = (uint8_t)((1u << whole->ndim) - 1)};
        for (unsigned d = 0; d < whole->ndim; d++)
            lifted->placements[d].kind = PLACEMENT_REPLICATE;
        for (unsigned d = 0; d < m->ndim; d++) {
            lifted->placements[at[d]] = old->placements[d];
            lifted->absent_dims &= (uint8_t) ~(1u << at[d]);
        }
        return true;
    }
    return false;
}

/* A tensor on a slice of the mesh is replicated over the rest. With that recorded, all tensors have
 * one mesh. */
static fsdpck_status lift_slices(ranks_state *s, fsdpck_error *err)
{
    catalogue *cat = s->cat;
    uint64_t largest = 0;
    const size_t count = cat->specs.count;
    cat_spec lifted;

    for (uint32_t i = 0; i < cat->meshes.count; i++)
        if (mesh_size(catalogue_mesh(cat, i)) > largest)
            largest = mesh_size(catalogue_mesh(cat, i));
    uint32_t *moved = budget_alloc(s->req->metadata, count * sizeof *moved, err);
    if (moved == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = FSDPCK_OK;
    for (size_t k = 0; k < count && st == FSDPCK_OK; k++) {
        const cat_spec old = *VEC_AT(&cat->specs, const cat_spec, k);
        moved[k] = (uint32_t)k;
        if (lift_spec(cat, &old, largest, &lifted))
            st = catalogue_add_spec(cat, &lifted, &moved[k], err);
    }
    for (size_t t = 0; t < cat->tensors.count && st == FSDPCK_OK; t++)
        if (catalogue_tensor(cat, t)->spec != CAT_NONE)
            catalogue_tensor(cat, t)->spec = moved[catalogue_tensor(cat, t)->spec];
    budget_free(s->req->metadata, moved, count * sizeof *moved);
    return st;
}

fsdpck_status ranks_tidy(ranks_state *s, fsdpck_error *err)
{
    mark_joined(s);
    RETURN_IF(compact(s, err));
    return lift_slices(s, err);
}
