#include "statedict/unflatten.h"

#include <stdlib.h>

#include "base/checked.h"
#include "state/catalogue_copy.h"
#include "statedict/unflatten_internal.h"

/* --- the source --- */

static const flat_chunk *flat_chunk_of(const flat_adapter *v, uint64_t chunk)
{
    return VEC_AT(&v->spots, const flat_chunk, catalogue_chunk(v->out, chunk)->aux);
}

/* Strides of a box whose elements are contiguous in the parameter's memory order. */
static void box_strides(const flat_adapter *v, const unit_param *p, const uint64_t *sizes,
                        uint64_t step, uint64_t *strides)
{
    const uint64_t *order =
        p->permuted ? VEC_AT(&v->units->dims, const uint64_t, p->order_at) : NULL;
    uint64_t stride = step;
    for (unsigned i = p->ndim; i-- > 0;) {
        const uint64_t d = order == NULL ? i : order[i];
        strides[d] = stride;
        stride *= sizes[d];
    }
}

static fsdpck_status refused(const flat_adapter *v, const flat_chunk *s, fsdpck_error *err)
{
    if (s->param == FLAT_CHUNK_REFUSED) {
        if (err != NULL)
            *err = v->refusal;
        return v->refusal.status;
    }
    return flat_join_refuse(NULL, err);
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const flat_adapter *v = ctx;
    const flat_chunk *s = flat_chunk_of(v, chunk);
    const cat_chunk *k = catalogue_chunk(v->out, chunk);
    uint64_t sizes[NDIM_MAX], step, skip;

    if (s->param == FLAT_CHUNK_REFUSED || s->param == FLAT_CHUNK_DIFFERS)
        return refused(v, s, err);
    RETURN_IF(v->base_source.locate(v->base_source.ctx, s->chunk, where, err));
    if (s->param == FLAT_CHUNK_AS_IS || s->param == FLAT_CHUNK_ALIAS)
        return FSDPCK_OK;
    const dtype d = (dtype)catalogue_tensor(v->out, k->tensor)->dtype;
    step = where->rows ? 1 : where->strides[0];
    if (!checked_mul(s->skip, step, &skip) ||
        !checked_mul(skip, dtype_get(d)->itemsize_bytes, &skip) ||
        !checked_add(where->offset_bytes, skip, &where->offset_bytes))
        return FAIL(err, BADINPUT, TENSOR_BOUNDS, "tensor extends beyond its storage");
    catalogue_chunk_box(v->out, chunk, NULL, sizes);
    const unit_param *p = flat_param(v, s->param);
    box_strides(v, p, sizes, step, where->strides);
    where->rows = step == 1 && !p->permuted;
    return FSDPCK_OK;
}

static fsdpck_status read_at(void *ctx, uint32_t file, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    const source *s = &((const flat_adapter *)ctx)->base_source;
    return s->read_at(s->ctx, file, offset_bytes, dst, nbytes, err);
}

static fsdpck_status stream_open(void *ctx, uint64_t chunk, source_stream **stream,
                                 fsdpck_error *err)
{
    const flat_adapter *v = ctx;
    const source *s = &v->base_source;
    return s->stream_open(s->ctx, flat_chunk_of(v, chunk)->chunk, stream, err);
}

static uint64_t stream_nbytes(void *ctx, uint64_t chunk)
{
    const flat_adapter *v = ctx;
    const source *s = &v->base_source;
    return s->stream_nbytes(s->ctx, flat_chunk_of(v, chunk)->chunk);
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    const source *s = &((const flat_adapter *)ctx)->base_source;
    return s->check_unchanged(s->ctx, err);
}

const source *flat_adapter_source(const flat_adapter *v)
{
    return &v->source;
}

uint64_t flat_adapter_dropped(const flat_adapter *v)
{
    return v->dropped_count;
}

/* --- construction --- */

/* Lists the other names of each parameter, from all units. */
static fsdpck_status list_aliases(flat_adapter *v, fsdpck_error *err)
{
    const unit_list *l = v->units;
    uint32_t *first = vec_push_n(&v->first_alias, l->params.count, err);
    uint32_t *of = vec_push_n(&v->unit_of, l->params.count, err);

    if ((first == NULL || of == NULL) && l->params.count > 0)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < l->params.count; i++)
        first[i] = CAT_NONE;
    for (uint32_t i = 0; i < unit_count(l); i++) {
        const unit *u = unit_at(l, i);
        for (uint32_t k = 0; k < u->nparams; k++)
            of[u->first_param + k] = i;
    }
    for (size_t i = l->shared.count; i-- > 0;) {
        const unit_shared *s = VEC_AT(&l->shared, const unit_shared, i);
        size_t nbytes;
        const char *name = unit_name(l, s->same_as, &nbytes);
        const unit_param *p = unit_list_find_param(l, name, nbytes, NULL);
        flat_alias *t = vec_push(&v->twins, err);
        if (t == NULL)
            return FSDPCK_LIMIT;
        if (p == NULL)
            return FAIL(err, INTERNAL, NONE, "list of units is not sealed");
        const size_t at = (size_t)(p - VEC_AT(&l->params, const unit_param, 0));
        *t = (flat_alias){.fqn = s->fqn, .next = first[at]};
        first[at] = (uint32_t)(v->twins.count - 1);
    }
    return FSDPCK_OK;
}

/* A flat parameter is sharded without regard to its parameters' dims, and no output should repeat
 * that. Declares them sharded as FSDP shards parameters that it does not flatten: along dim 0. */
static fsdpck_status make_spec(flat_adapter *v, fsdpck_error *err)
{
    const int64_t all = v->base->origin.world_size;
    uint64_t ranks = 1;
    v->spec = CAT_NONE;
    if (!flat_has_pieces(v->base))
        return FSDPCK_OK;
    for (uint32_t i = 0; i < unit_count(v->units); i++) {
        const uint32_t n = unit_at(v->units, i)->world_size;
        if (n > 1 && ranks > 1 && n != ranks)
            return FSDPCK_OK;
        ranks = n > 1 ? n : ranks;
    }
    if (ranks == 1)
        return FSDPCK_OK;
    cat_spec spec = {0};
    mesh m = {.ndim = 1, .sizes = {ranks}, .names = {"fsdp"}};
    if (all > 0 && (uint64_t)all > ranks && (uint64_t)all % ranks == 0)
        m = (mesh){.ndim = 2, .sizes = {(uint64_t)all / ranks, ranks}, .names = {"ddp", "fsdp"}};
    spec.placements[m.ndim - 1] = (placement){.kind = PLACEMENT_SHARD};
    RETURN_IF(catalogue_add_mesh(v->out, &m, &spec.mesh, err));
    return catalogue_add_spec(v->out, &spec, &v->spec, err);
}

/* If the view has the items of the first catalogue, its nesting applies. */
static fsdpck_status keep_root(flat_adapter *v, fsdpck_error *err)
{
    const catalogue *from = v->base;
    if (value_is_none(from->root) || flat_has_pieces(from) || v->carries ||
        catalogue_tensor_count(from) != catalogue_tensor_count(v->out))
        return FSDPCK_OK;
    for (size_t i = 0; i < v->map.count; i++)
        if (*VEC_AT(&v->map, const uint64_t, i) == UINT64_MAX)
            return FSDPCK_OK;
    return value_copy(&from->pool, from->root, &v->out->pool, v->map.items, &v->out->root, err);
}

static flat_adapter *view_init(catalogue *base, const source *src, const unit_list *units,
                               const flat_adapter_options *options, catalogue *out)
{
    budget *owner = out->owner;
    flat_adapter *v = calloc(1, sizeof *v);
    if (v == NULL)
        return NULL;
    v->base = base;
    v->base_source = *src;
    v->units = units;
    v->options = *options;
    v->out = out;
    v->owner = owner;
    /* Without units and flat parameters all state is whole. */
    v->has_flat = flat_params_count(base, NULL) > 0;
    v->by_text = !base->origin.types_keys && unit_count(units) > 0 && flat_lists_numbers(v);
    v->whole = flat_numbers_are_whole(base, v->by_text) || (unit_count(units) == 0 && !v->has_flat);
    v->spots = VEC_OF(flat_chunk, owner);
    v->map = VEC_OF(uint64_t, owner);
    v->object_origin = VEC_OF(uint32_t, owner);
    v->refused = VEC_OF(uint32_t, owner);
    v->twins = VEC_OF(flat_alias, owner);
    v->first_alias = VEC_OF(uint32_t, owner);
    v->unit_of = VEC_OF(uint32_t, owner);
    v->made_as = VEC_OF(uint32_t, owner);
    v->flat_of = VEC_OF(uint32_t, owner);
    v->by_name = VEC_OF(uint32_t, owner);
    v->pieces = VEC_OF(flat_state_tensor, owner);
    v->optimizers = VEC_OF(flat_optimizer, owner);
    v->targets = VEC_OF(uint32_t, owner);
    strtab_init(&v->texts, owner);
    strtab_init(&v->covered, owner);
    strtab_init(&v->dropped, owner);
    v->source = (source){.ctx = v,
                         .cat = out,
                         .locate = locate,
                         .read_at = read_at,
                         .stream_open = src->stream_open == NULL ? NULL : stream_open,
                         .stream_read = src->stream_read,
                         .stream_finish = src->stream_finish,
                         .stream_close = src->stream_close,
                         .stream_nbytes = src->stream_nbytes == NULL ? NULL : stream_nbytes,
                         .replica_of = flat_replica_of,
                         .check_unchanged = check_unchanged};
    return v;
}

/* Frees the data needed only for construction. */
static void release_scratch(flat_adapter *v)
{
    v->options.order = NULL;
    v->options.order_count = 0;
    v->options.groups = NULL;
    v->options.match = NULL;
    v->options.ties = NULL;
    v->options.tie_count = 0;
    VEC_RELEASE_ALL(&v->made_as, &v->flat_of, &v->by_name, &v->pieces, &v->optimizers, &v->targets,
                    &v->twins, &v->first_alias);
    strtab_release(&v->texts);
    strtab_release(&v->covered);
    v->dropped_count = strtab_count(&v->dropped);
    strtab_release(&v->dropped);
}

fsdpck_status flat_adapter_new(catalogue *base, const source *src, const unit_list *units,
                               const flat_adapter_options *options, catalogue *out,
                               flat_adapter **view, fsdpck_error *err)
{
    *view = NULL;
    flat_adapter *v = view_init(base, src, units, options, out);
    if (v == NULL)
        return error_set_nomem(err, sizeof *v);
    fsdpck_status st = FSDPCK_OK;
    GOTO_IF(list_aliases(v, err), out);
    GOTO_IF(catalogue_copy_frame(v->out, v->base, err), out);
    GOTO_IF(make_spec(v, err), out);
    GOTO_IF(flat_make_tensors(v, err), out);
    GOTO_IF(keep_root(v, err), out);
    GOTO_IF(catalogue_seal(v->out, err), out);
    vec_trim(&v->spots);
out:
    release_scratch(v);
    if (st != FSDPCK_OK)
        flat_adapter_free(v);
    else
        *view = v;
    return st;
}

void flat_adapter_free(flat_adapter *v)
{
    if (v == NULL)
        return;
    VEC_RELEASE_ALL(&v->spots, &v->map, &v->object_origin, &v->refused, &v->unit_of);
    free(v);
}

/* --- objects loaded later --- */

uint32_t flat_adapter_object_origin(const flat_adapter *v, uint32_t object)
{
    return *VEC_AT(&v->object_origin, const uint32_t, catalogue_object(v->out, object)->number);
}

/* Adds the tensors of a loaded object. */
static fsdpck_status take_inner(flat_adapter *v, fsdpck_error *err)
{
    for (size_t i = v->map.count; i < catalogue_tensor_count(v->base); i++) {
        const cat_tensor *t = catalogue_tensor(v->base, i);
        flat_chunk *s = vec_push(&v->spots, err);
        uint64_t *mapped = vec_push(&v->map, err);
        uint32_t made;
        if (s == NULL || mapped == NULL)
            return FSDPCK_LIMIT;
        *s = (flat_chunk){.chunk = t->first_chunk, .param = FLAT_CHUNK_AS_IS};
        cat_chunk k = *catalogue_chunk(v->base, t->first_chunk);
        k.aux = (uint32_t)(v->spots.count - 1);
        RETURN_IF(catalogue_add_object_tensor(
            v->out, catalogue_name(v->base, t->name), catalogue_name_nbytes(v->base, t->name),
            (dtype)t->dtype, t->ndim, catalogue_shape(v->base, i), &k, &made, err));
        *mapped = made;
        if (!(t->flags & CAT_TENSOR_NAMED))
            continue;
        value path;
        RETURN_IF(value_copy(&v->base->pool, t->path, &v->out->pool, NULL, &path, err));
        catalogue_tensor(v->out, made)->path = path;
        catalogue_tensor(v->out, made)->flags |= CAT_TENSOR_NAMED;
    }
    return FSDPCK_OK;
}

fsdpck_status flat_adapter_load_object(flat_adapter *v, uint32_t object, fsdpck_error *err)
{
    const cat_object *from = catalogue_object(v->base, flat_adapter_object_origin(v, object));
    value copy;

    for (size_t i = 0; i < v->refused.count; i++) {
        if (*VEC_AT(&v->refused, const uint32_t, i) != catalogue_object(v->out, object)->number)
            continue;
        if (err != NULL)
            *err = v->refusal;
        return v->refusal.status;
    }
    RETURN_IF(take_inner(v, err));
    RETURN_IF(value_copy(&v->base->pool, from->content, &v->out->pool, v->map.items, &copy, err));
    cat_object *to = catalogue_object(v->out, object);
    to->content = copy;
    to->loaded = from->loaded;
    to->opaque = from->opaque;
    return FSDPCK_OK;
}
