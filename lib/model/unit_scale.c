#include "model/unit.h"

void unit_param_strides(const unit_list *l, const unit_param *p, uint64_t *strides)
{
    if (p->ndim == 0)
        return;
    const uint64_t *shape = unit_param_shape(l, p);
    const uint64_t *order = VEC_AT(&l->dims, const uint64_t, p->order_at);
    uint64_t stride = 1;
    for (unsigned i = p->ndim; i-- > 0;) {
        strides[order[i]] = stride;
        stride *= shape[order[i]];
    }
}

static fsdpck_status copy_unit(const unit_list *l, const unit *u, const unit *proto, unit_list *out,
                               fsdpck_error *err)
{
    size_t nbytes, other_nbytes;
    const char *name = unit_name(l, u->prefix, &nbytes);
    const char *other = unit_name(l, u->flat_name, &other_nbytes);
    RETURN_IF(unit_list_add(out, proto, name, nbytes, other, other_nbytes, err));
    for (uint32_t k = 0; k < u->nparams; k++) {
        uint64_t strides[NDIM_MAX];
        const unit_param *p = unit_param_at(l, u, k);
        name = unit_name(l, p->fqn, &nbytes);
        if (p->permuted)
            unit_param_strides(l, p, strides);
        RETURN_IF(unit_list_add_param(out, name, nbytes, p->ndim, unit_param_shape(l, p),
                                      p->permuted ? strides : NULL, err));
    }
    for (uint32_t k = 0; k < u->nshared; k++) {
        const unit_shared *s = unit_shared_at(l, u, k);
        name = unit_name(l, s->fqn, &nbytes);
        other = unit_name(l, s->same_as, &other_nbytes);
        RETURN_IF(unit_list_add_shared(out, name, nbytes, other, other_nbytes, err));
    }
    return unit_list_close(out, err);
}

fsdpck_status unit_list_scale(const unit_list *l, uint32_t world_size, unit_list *out,
                              fsdpck_error *err)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < unit_count(l); i++)
        if (unit_at(l, i)->world_size > most)
            most = unit_at(l, i)->world_size;
    for (uint32_t i = 0; i < unit_count(l); i++) {
        const unit *u = unit_at(l, i);
        unit proto = *u;
        if (world_size > 0 && (u->world_size > 1 || most == 1))
            proto.world_size = world_size;
        /* torch uses NO_SHARD for a single rank, whatever was requested. */
        if (u->world_size == 1 && proto.world_size > 1)
            proto.unsharded = false;
        RETURN_IF(copy_unit(l, u, &proto, out, err));
    }
    return unit_list_seal(out, err);
}
