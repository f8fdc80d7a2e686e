/* One pass over the first catalogue: tensors and objects of the second. */
#include <inttypes.h>
#include <string.h>

#include "statedict/unflatten_internal.h"

const unit_param *flat_param(const flat_adapter *v, uint32_t index)
{
    return VEC_AT(&v->units->params, const unit_param, index);
}

const unit *flat_unit_of(const flat_adapter *v, uint32_t param)
{
    return unit_at(v->units, *VEC_AT(&v->unit_of, const uint32_t, param));
}

/* --- adding --- */

fsdpck_status flat_path(flat_adapter *v, value path, size_t keep, const char *const *more,
                        const size_t *more_nbytes, size_t more_count, value *made,
                        fsdpck_error *err)
{
    value_pool *pool = &v->out->pool;
    vec items = VEC_OF(value, v->owner);
    fsdpck_status st = FSDPCK_OK;

    *made = VALUE_OF_NONE;
    if (value_is_none(path))
        return FSDPCK_OK;
    value *slots = vec_push_n(&items, keep + more_count, err);
    if (slots == NULL && keep + more_count > 0)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < keep; i++)
        GOTO_IF(value_copy(&v->base->pool, value_item(&v->base->pool, path, i), pool, NULL,
                           &slots[i], err),
                out);
    for (size_t i = 0; i < more_count; i++)
        GOTO_IF(value_new_str(pool, more[i], more_nbytes[i], &slots[keep + i], err), out);
    st = value_new_from(pool, VALUE_TUPLE, slots, keep + more_count, made, err);
out:
    vec_release(&items);
    return st;
}

static fsdpck_status new_tensor(flat_adapter *v, const char *name, size_t nbytes, dtype d,
                                unsigned ndim, const uint64_t *shape, uint32_t made_as,
                                uint32_t *tensor, bool *fresh, fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&v->out->names, name, nbytes, &id, err));
    const size_t names = strtab_count(&v->out->names);
    if (names > v->by_name.count && vec_push_n(&v->by_name, names - v->by_name.count, err) == NULL)
        return FSDPCK_LIMIT;
    const uint32_t found = *VEC_AT(&v->by_name, const uint32_t, id);
    *fresh = found == 0;
    if (!*fresh) {
        *tensor = found - 1;
        if (made_as != FLAT_CHUNK_AS_IS && *VEC_AT(&v->made_as, const uint32_t, *tensor) == made_as)
            return FSDPCK_OK;
        return FAIL_WITH(err, BADINPUT, KEY_DUP, ("two tensors receive the same name"),
                         (tensor, name));
    }
    RETURN_IF(catalogue_add_tensor(v->out, name, nbytes, d, ndim, shape, tensor, err));
    RETURN_IF(vec_add(&v->made_as, &(uint32_t){made_as}, err));
    *VEC_AT(&v->by_name, uint32_t, id) = *tensor + 1;
    return FSDPCK_OK;
}

fsdpck_status flat_tensor_get(flat_adapter *v, const char *name, size_t nbytes, dtype d,
                              uint32_t param, uint32_t *tensor, bool *fresh, fsdpck_error *err)
{
    const unit_param *p = flat_param(v, param);
    RETURN_IF(new_tensor(v, name, nbytes, d, p->ndim, unit_param_shape(v->units, p), param, tensor,
                         fresh, err));
    if (*fresh && p->ndim > 0 && flat_unit_of(v, param)->world_size > 1)
        catalogue_tensor(v->out, *tensor)->spec = v->spec;
    return FSDPCK_OK;
}

fsdpck_status flat_add_chunk(flat_adapter *v, uint64_t chunk, uint64_t skip, uint32_t param,
                             cat_chunk *k, fsdpck_error *err)
{
    flat_chunk *s = vec_push(&v->spots, err);
    if (s == NULL || v->spots.count > UINT32_MAX)
        return s == NULL ? FSDPCK_LIMIT : FAIL(err, LIMIT, LIMIT_COUNT, "too many chunks");
    *s = (flat_chunk){.chunk = chunk, .skip = skip, .param = param};
    *k = *catalogue_chunk(v->base, chunk);
    k->aux = (uint32_t)(v->spots.count - 1);
    return FSDPCK_OK;
}

fsdpck_status flat_add_same(flat_adapter *v, uint32_t tensor, uint64_t chunk,
                            uint32_t flat_param_index, fsdpck_error *err)
{
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    cat_chunk k;
    RETURN_IF(flat_add_chunk(v, chunk, 0, flat_param_index, &k, err));
    catalogue_chunk_box(v->base, chunk, offsets, sizes);
    return catalogue_add_chunk(v->out, tensor, offsets, sizes, &k, err);
}

/* Checks that a chunk of the first catalogue has elements [begin, end), in the tensor's dtype: each
 * rank's file describes its own tensors. */
static fsdpck_status check_held(const flat_adapter *v, uint32_t tensor, uint64_t chunk,
                                uint64_t begin, uint64_t end, fsdpck_error *err)
{
    const cat_tensor *made = catalogue_tensor(v->out, tensor);
    const cat_tensor *t = catalogue_tensor(v->base, catalogue_chunk(v->base, chunk)->tensor);
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(v->base, chunk, NULL, sizes);
    if (t->dtype == made->dtype && begin <= end && end <= box_nelems(sizes, t->ndim))
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, RANK_DISAGREE,
                     ("shards of a flat parameter contradict each other between ranks"),
                     (tensor, catalogue_name(v->base, t->name)),
                     (expected, "%s", dtype_get((dtype)made->dtype)->name),
                     (found, "%s", dtype_get((dtype)t->dtype)->name));
}

fsdpck_status flat_add_interval(flat_adapter *v, uint32_t tensor, uint32_t param, uint64_t offset,
                                uint64_t chunk, uint64_t held, uint64_t begin, uint64_t end,
                                fsdpck_error *err)
{
    const unit_param *p = flat_param(v, param);
    const uint64_t lo = begin > offset ? begin : offset;
    const uint64_t hi = end < offset + p->nelems ? end : offset + p->nelems;
    const uint64_t itemsize =
        dtype_get((dtype)catalogue_tensor(v->out, tensor)->dtype)->itemsize_bytes;
    unit_boxes b;

    if (lo >= hi)
        return FSDPCK_OK;
    RETURN_IF(check_held(v, tensor, chunk, lo - held, hi - held, err));
    unit_boxes_init(&b, v->units, p, lo - offset, hi - offset);
    while (unit_boxes_next(&b)) {
        const uint64_t skip = offset + b.flat - held;
        cat_chunk k;
        RETURN_IF(flat_add_chunk(v, chunk, skip, param, &k, err));
        if (k.place == LOCATION_ROWS) {
            k.offset_bytes += skip * itemsize;
            k.nbytes = box_nelems(b.sizes, p->ndim) * itemsize;
            k.place = p->permuted ? LOCATION_STRIDED : LOCATION_ROWS;
        }
        RETURN_IF(catalogue_add_chunk(v->out, tensor, b.offsets, b.sizes, &k, err));
    }
    return FSDPCK_OK;
}

/* --- other tensors --- */

fsdpck_status flat_copy_tensor(flat_adapter *v, uint32_t base_tensor, const char *name,
                               size_t nbytes, value path, uint32_t *made, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, base_tensor);
    bool fresh;
    RETURN_IF(new_tensor(v, name, nbytes, (dtype)t->dtype, t->ndim,
                         catalogue_shape(v->base, base_tensor), FLAT_CHUNK_AS_IS, made, &fresh,
                         err));
    cat_tensor *m = catalogue_tensor(v->out, *made);
    m->path = path;
    m->flags = t->flags;
    m->python = t->python;
    m->spec = t->spec;
    return FSDPCK_OK;
}

fsdpck_status flat_keep_tensor(flat_adapter *v, uint32_t base_tensor, uint32_t flat_param_index,
                               fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, base_tensor);
    uint32_t made;
    bool fresh;
    value path;

    RETURN_IF(new_tensor(v, catalogue_name(v->base, t->name),
                         catalogue_name_nbytes(v->base, t->name), (dtype)t->dtype, t->ndim,
                         catalogue_shape(v->base, base_tensor), FLAT_CHUNK_AS_IS, &made, &fresh,
                         err));
    RETURN_IF(value_copy(&v->base->pool, t->path, &v->out->pool, NULL, &path, err));
    cat_tensor *m = catalogue_tensor(v->out, made);
    m->path = path;
    m->flags = t->flags;
    m->python = t->python;
    m->spec = t->spec;
    m->alias = t->alias; /* indexes of the first catalogue until all are made */
    *VEC_AT(&v->map, uint64_t, base_tensor) = made;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++)
        RETURN_IF(flat_add_same(v, made, k, flat_param_index, err));
    return FSDPCK_OK;
}

/* --per-rank keep does not help: without flat parameters, their tensors have one name for all ranks. */
fsdpck_status flat_join_refuse(const char *name, fsdpck_error *err)
{
    const fsdpck_status st = FAIL_WITH(
        err, BADINPUT, RANK_DIFFER, ("a plain tensor differs in shape or dtype between ranks"),
        (next, "check that all files are from one save; if they are, give --per-rank "
               "first or drop"));
    if (name != NULL)
        error_tensor(err, name);
    return st;
}

fsdpck_status flat_join_tensor(flat_adapter *v, uint32_t base_tensor, const char *name,
                               size_t nbytes, value path, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, base_tensor);
    const uint64_t *shape = catalogue_shape(v->base, base_tensor);
    uint32_t made, id;
    bool fresh;

    if (v->options.ranks == PER_RANK_DROP && (t->flags & CAT_TENSOR_DIFFERS))
        return strtab_intern(&v->dropped, name, nbytes, &id, err);
    RETURN_IF(new_tensor(v, name, nbytes, (dtype)t->dtype, t->ndim, shape, FLAT_CHUNK_JOINED, &made,
                         &fresh, err));
    cat_tensor *m = catalogue_tensor(v->out, made);
    if (fresh) {
        m->path = path;
        m->python = t->python;
        m->flags = (uint8_t)(t->flags & ~(CAT_TENSOR_OF_RANK | CAT_TENSOR_DIFFERS));
    }
    *VEC_AT(&v->map, uint64_t, base_tensor) = made;
    if (!fresh && v->options.ranks == PER_RANK_FIRST && (t->flags & CAT_TENSOR_OF_RANK))
        return FSDPCK_OK;
    const bool same =
        m->dtype == t->dtype && shape_equal(catalogue_shape(v->out, made), m->ndim, shape, t->ndim);
    if (!same && box_nelems(catalogue_shape(v->out, made), m->ndim) == 0) /* never read */
        return flat_join_refuse(name, err);
    if (!same) { /* reading it reports the error */
        for (size_t i = 0; i < v->out->chunks.count; i++)
            if (catalogue_chunk(v->out, i)->tensor == made)
                VEC_AT(&v->spots, flat_chunk, catalogue_chunk(v->out, i)->aux)->param =
                    FLAT_CHUNK_DIFFERS;
        return FSDPCK_OK;
    }
    if (!fresh)
        m->flags |= CAT_TENSOR_EACH_RANK;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++)
        RETURN_IF(flat_add_same(v, made, k, FLAT_CHUNK_AS_IS, err));
    return FSDPCK_OK;
}

/* --- objects --- */

typedef struct carry_visit {
    flat_adapter *v;
    const char *name; /* the object's */
    size_t nbytes;
    uint64_t number;
} carry_visit;

static fsdpck_status in_ranks(const flat_adapter *v, uint32_t base_tensor, const char *object,
                              fsdpck_error *err)
{
    return FAIL_WITH(
        err, UNSUPPORTED, NONE,
        ("object '%s' contains a tensor that is sharded over the ranks", object),
        (tensor, catalogue_name(v->base, catalogue_tensor(v->base, base_tensor)->name)),
        (next, "save the object again without the tensor"));
}

/* 'OBJECT#N', a name that no tensor has. */
static fsdpck_status new_carried(carry_visit *c, uint32_t base_tensor, uint32_t *made,
                                 fsdpck_error *err)
{
    const catalogue *out = c->v->out;
    text_buf name = {.limit_bytes = UINT32_MAX};
    fsdpck_status st;
    do {
        name.nbytes = 0;
        text_append(&name, c->name, c->nbytes);
        text_printf(&name, "#%" PRIu64, c->number++);
        st = text_check(&name, err);
    } while (st == FSDPCK_OK && strtab_find(&out->names, name.text, name.nbytes) != STRTAB_NONE);
    if (st == FSDPCK_OK)
        st = flat_copy_tensor(c->v, base_tensor, name.text, name.nbytes, VALUE_OF_NONE, made, err);
    text_release(&name);
    return st;
}

/* A tensor whose elements were moved to others, such as a flat parameter's, remains in the objects
 * that contain it. */
static fsdpck_status visit_carried(void *ctx, value content, fsdpck_error *err)
{
    carry_visit *c = ctx;
    flat_adapter *v = c->v;
    uint32_t made;
    if (value_kind_of(content) != VALUE_TENSOR)
        return FSDPCK_OK;
    const uint64_t i = value_tensor_index(content);
    const cat_tensor *t = catalogue_tensor(v->base, i);
    if (*VEC_AT(&v->map, const uint64_t, i) != UINT64_MAX)
        return FSDPCK_OK;
    if (t->nchunks != 1)
        return in_ranks(v, (uint32_t)i, c->name, err);
    RETURN_IF(new_carried(c, (uint32_t)i, &made, err));
    cat_tensor *m = catalogue_tensor(v->out, made);
    m->flags = CAT_TENSOR_IN_OBJECT;
    m->spec = CAT_NONE;
    *VEC_AT(&v->map, uint64_t, i) = made;
    v->carries = true;
    return flat_add_same(v, made, t->first_chunk, FLAT_CHUNK_AS_IS, err);
}

fsdpck_status flat_add_object(flat_adapter *v, const char *name, size_t nbytes, value path,
                              uint32_t base_object, uint32_t *object, fsdpck_error *err)
{
    const cat_object *from = catalogue_object(v->base, base_object);
    value content = VALUE_OF_NONE;
    RETURN_IF(vec_add(&v->object_origin, &(uint32_t){base_object}, err));
    RETURN_IF(catalogue_add_object(v->out, name, nbytes, object, err));
    if (from->loaded || from->file == CAT_NONE) {
        carry_visit carry = {.v = v, .name = name, .nbytes = nbytes};
        RETURN_IF(value_walk(&v->base->pool, from->content, visit_carried, &carry, err));
        RETURN_IF(
            value_copy(&v->base->pool, from->content, &v->out->pool, v->map.items, &content, err));
    }
    cat_object *to = catalogue_object(v->out, *object);
    const uint32_t id = to->name, number = to->number;
    *to = *from;
    to->name = id;
    to->number = number;
    to->path = path;
    to->content = content;
    return FSDPCK_OK;
}
