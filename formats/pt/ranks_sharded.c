/* A ShardedTensor as torch 1.13 to 2.15 pickle it: its state is the tuple
 *
 *     (local shards, ShardedTensorMetadata, ProcessGroupState, sharding spec, init_rrefs)
 *
 * Each file lists the shards of all ranks; the data belongs to the local ones.
 */
#include <string.h>

#include "formats/pt/ranks_internal.h"

static fsdpck_status bad(fsdpck_error *err, const char *what)
{
    return FAIL(err, BADINPUT, RANK_SHARDED, "ShardedTensor's %s", what);
}

static uint64_t count_of(const value_pool *pool, value v, const char *name)
{
    value item;
    uint64_t n;
    return ranks_attribute(pool, v, name, &item) && value_as_u64(pool, item, &n) ? n : 0;
}

fsdpck_status ranks_shard_box(const value_pool *pool, value metadata, unsigned ndim,
                              uint64_t *offsets, uint64_t *sizes, uint64_t *rank, fsdpck_error *err)
{
    value item;
    unsigned n, m;

    if (!ranks_is_class(pool, metadata, "ShardMetadata") ||
        !ranks_attribute(pool, metadata, "shard_offsets", &item) ||
        !ranks_dims(pool, item, offsets, NDIM_MAX, &n) ||
        !ranks_attribute(pool, metadata, "shard_sizes", &item) ||
        !ranks_dims(pool, item, sizes, NDIM_MAX, &m) || n != ndim || m != ndim)
        return bad(err, "shard metadata has an unknown form");
    *rank = CAT_NONE;
    if (ranks_attribute(pool, metadata, "placement", &item) &&
        ranks_is_class(pool, item, "_remote_device") &&
        ranks_attribute(pool, item, "_rank", &item) && !value_as_u64(pool, item, rank))
        *rank = CAT_NONE;
    return FSDPCK_OK;
}

static void read_spec(const value_pool *pool, value spec, ranks_declared *c)
{
    value item;
    uint64_t dim;
    if (!ranks_is_class(pool, spec, "ChunkShardingSpec") ||
        !ranks_attribute(pool, spec, "dim", &item) || !value_as_u64(pool, item, &dim) ||
        dim >= c->ndim)
        return;
    c->has_spec_dim = true;
    c->spec_dim = (unsigned)dim;
}

fsdpck_status ranks_sharded_read(ranks_parse *p, value v, ranks_declared *c, fsdpck_error *err)
{
    const value_pool *pool = &p->scratch.pool;
    const value state = value_item(pool, value_call_of(pool, v)->args, 3);
    uint64_t shape[NDIM_MAX];
    unsigned ndim;
    value size, properties;

    c->kind = RANKS_SHARDED;
    if (value_kind_of(state) != VALUE_TUPLE || value_count(pool, state) < 4)
        return bad(err, "state has an unknown form");
    c->shards = value_item(pool, state, 0);
    const value metadata = value_item(pool, state, 1), group = value_item(pool, state, 2);
    if (value_kind_of(c->shards) != VALUE_LIST ||
        !ranks_is_class(pool, metadata, "ShardedTensorMetadata") ||
        !ranks_attribute(pool, metadata, "shards_metadata", &c->all_shards) ||
        value_kind_of(c->all_shards) != VALUE_LIST ||
        !ranks_attribute(pool, metadata, "size", &size) ||
        !ranks_dims(pool, size, shape, NDIM_MAX, &ndim))
        return bad(err, "metadata has an unknown form");
    if (ndim != c->ndim || memcmp(shape, c->shape, ndim * sizeof *shape) != 0)
        return bad(err, "metadata and tensor have different shapes");
    c->group_ranks = count_of(pool, group, "local_world_size");
    c->world = count_of(pool, group, "global_world_size");
    read_spec(pool, value_item(pool, state, 3), c);
    /* torch 2.15 keeps strides in a sixth property. */
    if (p->s->form[0] == '\0' &&
        ranks_attribute(pool, metadata, "tensor_properties", &properties)) {
        const value_call *call = value_call_of(pool, properties);
        if (call != NULL && call->has_state && value_count(pool, call->state) > 5)
            memcpy(p->s->form, "2.15 or newer", sizeof "2.15 or newer");
    }
    if (c->world <= MESH_RANKS_MAX && c->world > p->s->group_world)
        p->s->group_world = c->world;
    return FSDPCK_OK;
}
