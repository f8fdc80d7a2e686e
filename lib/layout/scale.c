/* scale.c: the mesh that a number of ranks makes of a source's mesh. */
#include <inttypes.h>
#include <string.h>

#include "layout/layout.h"

/* `kept` is the source's mesh with its FSDP dim at 1. */
static fsdpck_status not_a_multiple(const mesh *from, const mesh *kept, uint64_t world_size,
                                    fsdpck_error *err)
{
    const uint64_t step = mesh_size(kept);
    const uint64_t below = world_size / step * step;
    text_buf text = {0};
    mesh_print(from, &text);
    const fsdpck_status st =
        error_set(err, FSDPCK_USAGE, "",
                  "world size %" PRIu64 " does not fit the source's mesh, of which "
                  "all but the FSDP dim is kept",
                  world_size);
    error_expected(err, "a multiple of %" PRIu64, step);
    if (text_check(&text, NULL) == FSDPCK_OK)
        error_found(err, "%s in the source", text.text);
    if (below == 0)
        error_next(err, "choose %" PRIu64 " ranks, or give another mesh, as --mesh fsdp=%" PRIu64,
                   step, world_size);
    else
        error_next(err,
                   "choose %" PRIu64 " or %" PRIu64 " ranks, or give another mesh, as "
                   "--mesh fsdp=%" PRIu64,
                   below, below + step, world_size);
    text_release(&text);
    return st;
}

static fsdpck_status add_front(mesh *m, const char *name, uint64_t size, fsdpck_error *err)
{
    if (m->ndim == MESH_NDIM_MAX)
        return error_set(err, FSDPCK_USAGE, "", "source's mesh has no room for an FSDP dim");
    memmove(m->sizes + 1, m->sizes, m->ndim * sizeof *m->sizes);
    memmove(m->names + 1, m->names, m->ndim * sizeof *m->names);
    memset(m->names[0], 0, sizeof m->names[0]);
    memcpy(m->names[0], name, strlen(name));
    m->sizes[0] = size;
    m->ndim++;
    return FSDPCK_OK;
}

fsdpck_status layout_scale_mesh(const mesh *from, uint64_t world_size, mesh *m, fsdpck_error *err)
{
    *m = (mesh){0};
    if (world_size == 0 || world_size > MESH_RANKS_MAX)
        return error_set(err, FSDPCK_USAGE, "", "%" PRIu64 " ranks asked for, 1 to %u are possible",
                         world_size, MESH_RANKS_MAX);
    if (from == NULL)
        return add_front(m, "fsdp", world_size, err);
    RETURN_IF(mesh_check(from, err));
    *m = *from;
    if (mesh_size(from) == world_size)
        return FSDPCK_OK;
    const unsigned fsdp = mesh_dim_of(from, ROLE_FSDP);
    if (fsdp < from->ndim) {
        mesh others = *from;
        others.sizes[fsdp] = 1;
        if (world_size % mesh_size(&others) != 0)
            return not_a_multiple(from, &others, world_size, err);
        m->sizes[fsdp] = world_size / mesh_size(&others);
        return FSDPCK_OK;
    }
    mesh_role roles[MESH_NDIM_MAX];
    mesh_roles(from, roles);
    for (unsigned i = 0; i < from->ndim; i++) {
        if (roles[i] != ROLE_UNKNOWN)
            continue;
        const fsdpck_status st = error_set(
            err, FSDPCK_USAGE, "",
            "names of the source's mesh dims do not say which one to fit to %" PRIu64 " ranks",
            world_size);
        error_next(err, "give the whole mesh, as --mesh dp_shard=4,tp=2");
        return st;
    }
    if (from->ndim == 1 && roles[0] == ROLE_REPLICATE) {
        m->sizes[0] = world_size;
        return FSDPCK_OK;
    }
    if (world_size % mesh_size(from) != 0)
        return not_a_multiple(from, from, world_size, err);
    return add_front(m, "fsdp", world_size / mesh_size(from), err);
}
