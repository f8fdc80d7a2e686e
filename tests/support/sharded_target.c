#include "tests/support/sharded_target.h"

#include <string.h>

#include "layout/mesh_text.h"
#include "layout/shard_box.h"

fsdpck_status sharded_target_begin(target *t, const char *mesh_text, fsdpck_error *err)
{
    mesh m;
    uint32_t index;
    RETURN_IF(mesh_parse(mesh_text, &m, err));
    t->world_size = mesh_size(&m);
    return catalogue_add_mesh(&t->cat, &m, &index, err);
}

static placement placement_of(const mesh *m, const char *cut, unsigned i)
{
    placement p = {.kind = PLACEMENT_REPLICATE};
    if (cut[i] >= '0' && cut[i] <= '9')
        p = (placement){.kind = PLACEMENT_SHARD, .dim = (uint8_t)(cut[i] - '0')};
    if (cut[i] >= 'a' && cut[i] <= 'h') {
        p = (placement){PLACEMENT_STRIDED_SHARD, (uint8_t)(cut[i] - 'a'), 1};
        for (unsigned k = i + 1; k < m->ndim; k++)
            if (cut[k] == '0' + p.dim)
                p.split_factor *= (uint32_t)m->sizes[k];
    }
    return p;
}

fsdpck_status sharded_target_add(target *t, const char *name, dtype d, unsigned ndim,
                                 const uint64_t *shape, const char *cut, bool every_rank,
                                 uint32_t *index, fsdpck_error *err)
{
    const mesh m = *catalogue_mesh(&t->cat, 0);
    cat_spec spec = {.mesh = 0};
    uint64_t coord[MESH_NDIM_MAX], offsets[NDIM_MAX], sizes[NDIM_MAX];
    uint32_t tensor;

    for (unsigned i = 0; i < m.ndim && cut[0] != '\0'; i++) {
        spec.placements[i] = placement_of(&m, cut, i);
        spec.absent_dims |= (uint8_t)((cut[i] == '-') << i);
    }
    RETURN_IF(catalogue_add_tensor(&t->cat, name, strlen(name), d, ndim, shape, &tensor, err));
    if (cut[0] != '\0')
        RETURN_IF(
            catalogue_add_spec(&t->cat, &spec, &catalogue_tensor(&t->cat, tensor)->spec, err));
    for (uint64_t r = 0; r < t->world_size; r++) {
        const cat_chunk proto = {.rank = (uint16_t)r};
        mesh_coord(&m, r, coord);
        if (!every_rank && !shard_is_first_holder(&m, spec.placements, coord))
            continue;
        RETURN_IF(shard_box(&m, spec.placements, ndim, shape, coord, SHARD_PHYSICAL, offsets, sizes,
                            err));
        RETURN_IF(catalogue_add_chunk(&t->cat, tensor, offsets, sizes, &proto, err));
    }
    uint32_t *from = vec_push(&t->from, err);
    if (from == NULL)
        return FSDPCK_LIMIT;
    *from = tensor;
    if (index != NULL)
        *index = tensor;
    return FSDPCK_OK;
}
