/* largest_mesh.c: of several meshes in a catalogue, the one that a report shows. */
#include "layout/mesh_text.h"
#include "open/checkpoint.h"

const mesh *catalogue_largest_mesh(const catalogue *c)
{
    const mesh *best = NULL;
    for (size_t i = 0; i < c->meshes.count; i++) {
        const mesh *m = catalogue_mesh(c, (uint32_t)i);
        if (best == NULL || mesh_size(m) > mesh_size(best) ||
            (mesh_size(m) == mesh_size(best) && m->ndim > best->ndim))
            best = m;
    }
    return best;
}
