/* ds_other.c: the values of rank 0's model states: the module, in its order, and the values that a trainer
 * keeps beside it, such as lr_scheduler and a client state. */
#include <string.h>

#include "formats/deepspeed/ds_internal.h"

/* Keys that describe the files, and keys of the catalogue. */
static const char *const described[] = {"buffer_names",        "param_shapes",
                                        "frozen_param_shapes", "frozen_param_fragments",
                                        "shared_params",       "module"};
static const char *const taken[] = {"model", "optim"};

/* --- tensors --- */

typedef struct other_walk {
    ds_open *o;
    pt_flat flat;
    uint64_t *tensor_of; /* catalogue tensor by archive tensor; UINT64_MAX: none */
    size_t count;
    vec inner;       /* uint64_t: archive tensors of the current object */
    bool is_unknown; /* the current object needs a class that is not known */
    bool is_shard;   /* it contains a DTensor or ShardedTensor */
} other_walk;

static fsdpck_status add_tensor(other_walk *w, uint64_t index, const char *name, size_t nbytes,
                                value path, fsdpck_error *err)
{
    ds_state *s = w->o->s;
    uint32_t piece, tensor;
    value copy;
    RETURN_IF(ds_piece_of(w->o, index, &piece, err));
    const torch_shard *p = VEC_AT(&s->reader->pieces, const torch_shard, piece);
    RETURN_IF(catalogue_add_tensor(s->cat, name, nbytes, (dtype)p->dtype, p->ndim,
                                   torch_shard_sizes(s->reader, p), &tensor, err));
    RETURN_IF(value_copy(&w->o->scratch.pool, path, &s->cat->pool, NULL, &copy, err));
    catalogue_tensor(s->cat, tensor)->path = copy;
    w->tensor_of[index] = tensor;
    return ds_add_piece(s, tensor, piece, err);
}

static fsdpck_status add_inner(other_walk *w, uint64_t index, fsdpck_error *err)
{
    const pt_name *n = VEC_AT(&w->flat.names, const pt_name, index);
    if (w->tensor_of[index] != UINT64_MAX || n->flat == STRTAB_NONE)
        return FSDPCK_OK;
    RETURN_IF(add_tensor(w, index, strtab_text(&w->flat.flat, n->flat),
                         strtab_nbytes(&w->flat.flat, n->flat), n->path, err));
    catalogue_tensor(w->o->s->cat, w->tensor_of[index])->flags |=
        CAT_TENSOR_IN_OBJECT | (value_is_none(n->path) ? 0 : CAT_TENSOR_NAMED);
    return FSDPCK_OK;
}

/* --- objects --- */

static fsdpck_status look_at(void *ctx, value v, fsdpck_error *err)
{
    other_walk *w = ctx;
    const value_call *call = value_call_of(&w->o->scratch.pool, v);
    w->is_unknown =
        w->is_unknown || (call != NULL && !torch_call_is_known(&w->o->scratch.pool, call));
    w->is_shard = w->is_shard || pt_is_sharded(&w->o->scratch.pool, v);
    if (value_kind_of(v) != VALUE_TENSOR)
        return FSDPCK_OK;
    const uint64_t index = value_tensor_index(v);
    return vec_add(&w->inner, &index, err);
}

/* Objects with one rank's shard of a tensor are left out, and those of classes that are not known,
 * unless --objects opaque keeps them. */
static fsdpck_status add_object(other_walk *w, const char *name, size_t nbytes, value path,
                                value content, fsdpck_error *err)
{
    ds_state *s = w->o->s;
    value_pool *from = &w->o->scratch.pool;
    uint32_t object;
    w->inner.count = 0;
    w->is_unknown = w->is_shard = false;
    RETURN_IF(value_walk(from, content, look_at, w, err));
    if (w->is_shard || (w->is_unknown && !s->req->opaque_calls)) {
        ds_leave_out(s, name, nbytes);
        return FSDPCK_OK;
    }
    for (size_t i = 0; i < w->inner.count; i++)
        RETURN_IF(add_inner(w, *VEC_AT(&w->inner, const uint64_t, i), err));
    RETURN_IF(catalogue_add_object(s->cat, name, nbytes, &object, err));
    value made, made_path;
    RETURN_IF(value_copy(from, content, &s->cat->pool, w->tensor_of, &made, err));
    RETURN_IF(value_copy(from, path, &s->cat->pool, NULL, &made_path, err));
    cat_object *x = catalogue_object(s->cat, object);
    x->path = made_path;
    x->content = made;
    x->loaded = 1;
    return FSDPCK_OK;
}

/* --- the module --- */

static bool key_is(const value_pool *pool, value path, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (value_is_str(pool, value_item(pool, path, 0), words[i]))
            return true;
    return false;
}

/* A value of the module that is no tensor under one name: extra state, or a nested module. */
static fsdpck_status add_of_module(other_walk *w, uint32_t flat, uint64_t tensor, value path,
                                   value content, fsdpck_error *err)
{
    ds_state *s = w->o->s;
    value_pool *pool = &w->o->scratch.pool;
    text_buf name = {.limit_bytes = UINT32_MAX};
    value key, made;
    const size_t count = value_count(pool, path), skip = strlen("module");
    vec keys = VEC_OF(value, s->req->metadata);
    text_puts(&name, "model");
    text_append(&name, strtab_text(&w->flat.flat, flat) + skip,
                strtab_nbytes(&w->flat.flat, flat) - skip);
    fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK)
        st = value_new_str(pool, "model", 5, &key, err);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        const value item = i == 0 ? key : value_item(pool, path, i);
        st = vec_add(&keys, &item, err);
    }
    if (st == FSDPCK_OK)
        st = value_new_from(pool, VALUE_TUPLE, keys.items, keys.count, &made, err);
    if (st == FSDPCK_OK)
        st = tensor != UINT64_MAX ? add_tensor(w, tensor, name.text, name.nbytes, made, err)
                                  : add_object(w, name.text, name.nbytes, made, content, err);
    vec_release(&keys);
    text_release(&name);
    return st;
}

static fsdpck_status add_module(other_walk *w, uint32_t flat, uint64_t tensor, value path,
                                value content, fsdpck_error *err)
{
    value_pool *pool = &w->o->scratch.pool;
    uint32_t name;
    if (tensor == UINT64_MAX || value_count(pool, path) != 2 ||
        value_kind_of(value_item(pool, path, 1)) != VALUE_STR)
        return add_of_module(w, flat, tensor, path, content, err);
    RETURN_IF(ds_intern(w->o, value_item(pool, path, 1), &name, err));
    return ds_build_name(w->o->s, name, err);
}

/* --- all values --- */

static fsdpck_status add_value(other_walk *w, uint32_t flat, uint64_t tensor, value path,
                               value content, fsdpck_error *err)
{
    const value_pool *pool = &w->o->scratch.pool;
    const char *name = strtab_text(&w->flat.flat, flat);
    const size_t nbytes = strtab_nbytes(&w->flat.flat, flat);
    const bool is_none = tensor == UINT64_MAX && value_is_none(content);
    if (value_is_str(pool, value_item(pool, path, 0), "module") && value_count(pool, path) > 1)
        return add_module(w, flat, tensor, path, content, err);
    if (key_is(pool, path, described, sizeof described / sizeof *described) ||
        (is_none && value_is_str(pool, value_item(pool, path, 0), "optimizer")))
        return FSDPCK_OK;
    if (key_is(pool, path, taken, sizeof taken / sizeof *taken)) {
        ds_leave_out(w->o->s, name, nbytes);
        return FSDPCK_OK;
    }
    return tensor != UINT64_MAX ? add_tensor(w, tensor, name, nbytes, path, err)
                                : add_object(w, name, nbytes, path, content, err);
}

#define OBJECT_BIT UINT32_C(0x80000000)

/* `order`: of each flat key its tensor, OBJECT_BIT and its object, or UINT32_MAX: inside an object. */
static fsdpck_status add_in_order(other_walk *w, const uint32_t *order, fsdpck_error *err)
{
    for (uint32_t flat = 0; flat < strtab_count(&w->flat.flat); flat++) {
        const uint32_t at = order[flat] & ~OBJECT_BIT;
        fsdpck_status st = FSDPCK_OK;
        if (order[flat] == UINT32_MAX)
            continue;
        if (order[flat] & OBJECT_BIT) {
            const cat_object *o = catalogue_object(&w->o->scratch, at);
            st = add_value(w, flat, UINT64_MAX, o->path, o->content, err);
        } else {
            st = add_value(w, flat, at, VEC_AT(&w->flat.names, const pt_name, at)->path,
                           VALUE_OF_NONE, err);
        }
        if (st != FSDPCK_OK) {
            error_tensor(err, strtab_text(&w->flat.flat, flat));
            return st;
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status add_all(other_walk *w, fsdpck_error *err)
{
    budget *owner = w->o->s->req->metadata;
    const size_t count = strtab_count(&w->flat.flat);
    uint32_t *order = budget_alloc(owner, count * sizeof *order, err);
    if (order == NULL)
        return FSDPCK_LIMIT;
    memset(order, 0xFF, count * sizeof *order);
    for (size_t i = 0; i < w->flat.names.count; i++) {
        const pt_name *n = VEC_AT(&w->flat.names, const pt_name, i);
        if (n->flat != STRTAB_NONE && !n->inner)
            order[n->flat] = (uint32_t)i;
    }
    for (size_t i = 0; i < catalogue_object_count(&w->o->scratch); i++) {
        const uint32_t name = catalogue_object(&w->o->scratch, i)->name;
        order[strtab_find(&w->flat.flat, catalogue_name(&w->o->scratch, name),
                          catalogue_name_nbytes(&w->o->scratch, name))] = (uint32_t)i | OBJECT_BIT;
    }
    const fsdpck_status st = add_in_order(w, order, err);
    budget_free(owner, order, count * sizeof *order);
    return st;
}

fsdpck_status ds_build_state(ds_open *o, fsdpck_error *err)
{
    budget *owner = o->s->req->metadata;
    other_walk w = {.o = o, .inner = VEC_OF(uint64_t, owner)};
    pt_flat_init(&w.flat, &o->scratch, &o->archive);
    w.flat.keep_empty = true;
    w.flat.keep_sharded = true;
    fsdpck_status st = pt_flatten(&w.flat, err);
    if (st == FSDPCK_OK)
        st = pt_flatten_inner(&w.flat, err);
    if (st == FSDPCK_OK) {
        w.count = o->archive.tensors.count;
        w.tensor_of = budget_alloc(owner, w.count * sizeof *w.tensor_of, err);
        st = w.tensor_of == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    }
    if (st == FSDPCK_OK) {
        memset(w.tensor_of, 0xFF, w.count * sizeof *w.tensor_of);
        st = add_all(&w, err);
    }
    if (w.tensor_of != NULL)
        budget_free(owner, w.tensor_of, w.count * sizeof *w.tensor_of);
    vec_release(&w.inner);
    pt_flat_release(&w.flat);
    return st == FSDPCK_OK ? ds_build_rest(o->s, err) : st;
}
