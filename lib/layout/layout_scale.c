/* layout_scale.c: the source's mesh for a different number of ranks. */
#include <inttypes.h>
#include <stdio.h>

#include "layout/layout.h"

/* Handling of each dim of the source's mesh. */
typedef struct fit {
    mesh_role roles[MESH_NDIM_MAX];
    bool is_kept[MESH_NDIM_MAX];
    unsigned fsdp; /* the dim that takes the remaining ranks; from->ndim: none */
    uint64_t rest; /* ranks that the kept dims leave to it */
} fit;

static bool is_context(const mesh *from, unsigned i)
{
    return mesh_role_of(from->names[i]) == ROLE_CP;
}

/* An FSDP dim, or else a cp, which FSDP shards over too. */
static unsigned find_fsdp(const mesh *from, const mesh_role *roles)
{
    unsigned context = from->ndim;
    for (unsigned i = from->ndim; i-- > 0;)
        if (roles[i] == ROLE_FSDP && is_context(from, i))
            context = i;
    for (unsigned i = 0; i < from->ndim; i++)
        if (roles[i] == ROLE_FSDP && !is_context(from, i))
            return i;
    return context;
}

static bool is_model_parallel(const mesh *from, const fit *f, unsigned i)
{
    return f->roles[i] == ROLE_TP || f->roles[i] == ROLE_EP || f->roles[i] == ROLE_PIPELINE ||
           (f->roles[i] == ROLE_FSDP && i != f->fsdp && is_context(from, i));
}

/* Model-parallel dims stay, from the last to the first, if their product divides the ranks. */
static void fit_dims(const mesh *from, uint64_t world_size, fit *f)
{
    *f = (fit){.rest = world_size};
    mesh_roles(from, f->roles);
    f->fsdp = find_fsdp(from, f->roles);
    for (unsigned i = from->ndim; i-- > 0;) {
        f->is_kept[i] = i == f->fsdp || (f->roles[i] == ROLE_REPLICATE && from->sizes[i] == 1) ||
                        (is_model_parallel(from, f, i) && f->rest % from->sizes[i] == 0);
        if (f->is_kept[i] && i != f->fsdp)
            f->rest /= from->sizes[i];
    }
}

static fsdpck_status add_dim(mesh *m, const char *name, uint64_t size, fsdpck_error *err)
{
    if (m->ndim == MESH_NDIM_MAX)
        return FAIL(err, USAGE, NONE,
                    "mesh of the source has no FSDP dim, and none can be added: it already has %u "
                    "dims, the maximum",
                    MESH_NDIM_MAX);
    snprintf(m->names[m->ndim], sizeof m->names[m->ndim], "%s", name);
    m->sizes[m->ndim++] = size;
    return FSDPCK_OK;
}

/* The kept dims of the source, in order; if an FSDP dim is needed and the source has none, it is
 * added in front of the model-parallel dims. */
static fsdpck_status make_mesh(const mesh *from, const fit *f, mesh *m, fsdpck_error *err)
{
    bool has_fsdp = f->fsdp < from->ndim;
    for (unsigned i = 0; i < from->ndim; i++) {
        if (!f->is_kept[i])
            continue;
        if (!has_fsdp && f->rest > 1 && f->roles[i] != ROLE_REPLICATE) {
            RETURN_IF(add_dim(m, "fsdp", f->rest, err));
            has_fsdp = true;
        }
        RETURN_IF(add_dim(m, from->names[i], i == f->fsdp ? f->rest : from->sizes[i], err));
    }
    if (!has_fsdp && (f->rest > 1 || m->ndim == 0))
        RETURN_IF(add_dim(m, "fsdp", f->rest, err));
    return FSDPCK_OK;
}

/* All dims that --mesh can name, with an FSDP dim that makes the number of ranks about equal. */
static fsdpck_status find_keeper(const mesh *from, const fit *f, uint64_t world_size,
                                 layout_refit *refit, fsdpck_error *err)
{
    fit all = *f;
    uint64_t step = 1;
    for (unsigned i = 0; i < from->ndim; i++) {
        all.is_kept[i] = i == f->fsdp || f->roles[i] == ROLE_REPLICATE ||
                         (is_model_parallel(from, f, i) && f->roles[i] != ROLE_PIPELINE);
        if (all.is_kept[i] && i != f->fsdp)
            step *= from->sizes[i]; /* the product of all sizes is at most MESH_RANKS_MAX */
    }
    refit->step = step;
    refit->is_exact = world_size % step == 0;
    if (world_size < step)
        all.rest = f->fsdp < from->ndim ? from->sizes[f->fsdp] : 1;
    else
        all.rest = (world_size + step - 1) / step;
    return step * all.rest > MESH_RANKS_MAX ? FSDPCK_OK
                                            : make_mesh(from, &all, &refit->keeper, err);
}

/* Lists the lost dims: a dim of one rank is none. Other FSDP dims are merged into the FSDP dim. */
static fsdpck_status list_lost(const mesh *from, const fit *f, uint64_t world_size,
                               layout_refit *refit, fsdpck_error *err)
{
    bool can_be_kept = false;
    for (unsigned i = 0; i < from->ndim; i++) {
        const bool is_merged = f->roles[i] == ROLE_FSDP && !is_context(from, i);
        if (f->is_kept[i] || is_merged || from->sizes[i] == 1)
            continue;
        refit->lost[refit->lost_count++] = (uint8_t)i;
        can_be_kept = can_be_kept || (f->roles[i] != ROLE_UNKNOWN && f->roles[i] != ROLE_PIPELINE);
        refit->has_unknown = refit->has_unknown || f->roles[i] == ROLE_UNKNOWN;
    }
    return can_be_kept ? find_keeper(from, f, world_size, refit, err) : FSDPCK_OK;
}

fsdpck_status layout_scale_mesh(const mesh *from, uint64_t world_size, bool keeps_unknown, mesh *m,
                                layout_refit *refit, fsdpck_error *err)
{
    *m = (mesh){0};
    *refit = (layout_refit){0};
    if (world_size == 0 || world_size > MESH_RANKS_MAX)
        return FAIL(err, USAGE, NONE, "%" PRIu64 " ranks requested: 1 to %u are supported",
                    world_size, MESH_RANKS_MAX);
    if (from == NULL)
        return add_dim(m, "fsdp", world_size, err);
    RETURN_IF(mesh_check(from, err));
    fit f;
    fit_dims(from, world_size, &f);
    bool has_unknown = false;
    for (unsigned i = 0; i < from->ndim; i++)
        has_unknown = has_unknown || f.roles[i] == ROLE_UNKNOWN;
    if (mesh_size(from) == world_size && (keeps_unknown || !has_unknown)) {
        *m = *from;
        return FSDPCK_OK;
    }
    RETURN_IF(make_mesh(from, &f, m, err));
    return list_lost(from, &f, world_size, refit, err);
}
