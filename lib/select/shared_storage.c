#include <string.h>

#include "select/select_internal.h"

/* A storage stays shared by all of its views or by none. A view that is omitted, cast, conjugated
 * or negated would make the stored bytes wrong for the others. */

typedef struct shared_storage {
    bool lost;        /* some view cannot stay one */
    uint32_t carrier; /* target tensor that holds its bytes, CAT_NONE until there is one */
} shared_storage;

typedef struct view_state {
    select_state *a;
    shared_storage *storages; /* of source tensors parts->tensor_count + i */
    size_t count;
} view_state;

static shared_storage *storage_of(const view_state *v, uint32_t from_index)
{
    const uint32_t alias = catalogue_tensor(v->a->from, from_index)->alias;
    return alias == CAT_NONE ? NULL : &v->storages[alias - v->a->parts->tensor_count];
}

static fsdpck_status view_can_stay(const view_state *v, uint32_t from_index, bool *can,
                                   fsdpck_error *err)
{
    const select_state *a = v->a;
    const cat_tensor *t = catalogue_tensor(a->from, from_index);
    const uint64_t made = a->tensor_map[from_index];
    *can = made != UINT64_MAX && t->nchunks == 1 &&
           catalogue_tensor(&a->to->cat, made)->dtype == t->dtype &&
           catalogue_tensor(a->from, t->alias)->dtype == t->dtype;
    if (!*can || catalogue_tensor_nelems(a->from, from_index) == 0)
        return FSDPCK_OK;
    place where;
    RETURN_IF(select_resolve_storage(a, from_index, &where, err));
    const uint64_t offset = where.offset_bytes - where.record_offset_bytes;
    *can = !where.conj && !where.neg && offset % dtype_get((dtype)t->dtype)->itemsize_bytes == 0;
    return FSDPCK_OK;
}

/* The target tensor that takes the storage's bytes as they are. */
static fsdpck_status add_carrier(const view_state *v, uint32_t storage, uint32_t *carrier,
                                 fsdpck_error *err)
{
    static const uint64_t origin[1] = {0};
    select_state *a = v->a;
    catalogue *cat = &a->to->cat;
    const cat_tensor *t = catalogue_tensor(a->from, storage);
    const uint64_t *shape = catalogue_shape(a->from, storage);
    RETURN_IF(catalogue_add_tensor(cat, catalogue_name(a->from, t->name),
                                   catalogue_name_nbytes(a->from, t->name), (dtype)t->dtype, 1,
                                   shape, carrier, err));
    const cat_chunk whole = {.file = CAT_NONE, .rank = UINT16_MAX, .place = LOCATION_ROWS};
    RETURN_IF(catalogue_add_chunk(cat, *carrier, origin, shape, &whole, err));
    catalogue_tensor(cat, *carrier)->flags |= CAT_TENSOR_STORAGE;
    return vec_add(&a->to->from, &(uint32_t){storage}, err);
}

static fsdpck_status add_view(const view_state *v, uint32_t from_index, shared_storage *s,
                              fsdpck_error *err)
{
    select_state *a = v->a;
    const cat_tensor *t = catalogue_tensor(a->from, from_index);
    if (s->carrier == CAT_NONE)
        RETURN_IF(add_carrier(v, t->alias, &s->carrier, err));
    place where = {0};
    if (catalogue_tensor_nelems(a->from, from_index) > 0)
        RETURN_IF(select_resolve_storage(a, from_index, &where, err));
    else
        box_row_major_strides(catalogue_shape(a->from, from_index), t->ndim, where.strides);
    const target_alias view = {
        .storage = s->carrier,
        .offset_nelems = (where.offset_bytes - where.record_offset_bytes) /
                         dtype_get((dtype)t->dtype)->itemsize_bytes,
        .strides_at = a->to->strides.count,
    };
    RETURN_IF(vec_add(&a->to->views, &view, err));
    RETURN_IF(vec_add_n(&a->to->strides, where.strides, t->ndim, err));
    catalogue_tensor(&a->to->cat, a->tensor_map[from_index])->alias =
        (uint32_t)(a->to->views.count - 1);
    return FSDPCK_OK;
}

fsdpck_status select_keep_shared(select_state *a, fsdpck_error *err)
{
    const size_t first = a->parts->tensor_count;
    view_state v = {.a = a, .count = catalogue_tensor_count(a->from) - first};
    if (!a->request->nested || v.count == 0 ||
        !(catalogue_tensor(a->from, first)->flags & CAT_TENSOR_STORAGE))
        return FSDPCK_OK;
    v.storages = budget_alloc(a->from->owner, v.count * sizeof *v.storages, err);
    if (v.storages == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < v.count; i++)
        v.storages[i].carrier = CAT_NONE;
    for (uint32_t i = 0; i < first; i++) {
        shared_storage *s = storage_of(&v, i);
        bool can = true;
        if (s != NULL && !s->lost)
            GOTO_IF(view_can_stay(&v, i, &can, err), out);
        if (!can)
            s->lost = true;
    }
    for (uint32_t i = 0; i < first; i++) {
        shared_storage *s = storage_of(&v, i);
        if (s != NULL && !s->lost)
            GOTO_IF(add_view(&v, i, s, err), out);
    }
out:
    budget_free(a->from->owner, v.storages, v.count * sizeof *v.storages);
    return st;
}
