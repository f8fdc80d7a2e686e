#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "select/select_internal.h"

/* A storage stays shared by all of its views or by none. A view that is omitted, cast, conjugated,
 * negated or gets an added constant would make the stored bytes wrong for the others. Names of the same view then share a
 * new storage with the bytes of this view. */

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
    *can = !where.conj && !where.neg && where.add == 0 &&
           offset % dtype_get((dtype)t->dtype)->itemsize_bytes == 0;
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

/* A name for the carrier of a view that no other tensor has. */
static fsdpck_status name_carrier(const select_state *a, const select_pick *head, text_buf *name,
                                  fsdpck_error *err)
{
    text_append(name, strtab_text(&a->names, head->name), strtab_nbytes(&a->names, head->name));
    do {
        text_puts(name, " (storage)");
        RETURN_IF(text_check(name, err));
    } while (strtab_find(&a->to->cat.names, name->text, name->nbytes) != STRTAB_NONE);
    return FSDPCK_OK;
}

/* The target tensor that takes the bytes of the head's view, in the dtype of the head. */
static fsdpck_status add_view_carrier(select_state *a, const select_pick *head, uint32_t *carrier,
                                      fsdpck_error *err)
{
    static const uint64_t origin[NDIM_MAX];
    catalogue *cat = &a->to->cat;
    const cat_tensor *t = catalogue_tensor(a->from, head->source);
    const uint64_t *shape = catalogue_shape(a->from, head->source);
    const cat_chunk whole = {.file = CAT_NONE, .rank = UINT16_MAX, .place = LOCATION_ROWS};
    text_buf name = {0};
    fsdpck_status st = name_carrier(a, head, &name, err);
    if (st == FSDPCK_OK)
        st = catalogue_add_tensor(cat, name.text, name.nbytes,
                                  (dtype)catalogue_tensor(cat, head->target)->dtype, t->ndim, shape,
                                  carrier, err);
    text_release(&name);
    RETURN_IF(st);
    RETURN_IF(catalogue_add_chunk(cat, *carrier, origin, shape, &whole, err));
    catalogue_tensor(cat, *carrier)->flags |= CAT_TENSOR_STORAGE;
    return vec_add(&a->to->from, &(uint32_t){head->source}, err);
}

static fsdpck_status view_whole(select_state *a, const select_pick *p, uint32_t carrier,
                                fsdpck_error *err)
{
    uint64_t strides[NDIM_MAX];
    const unsigned ndim = catalogue_tensor(a->from, p->source)->ndim;
    const target_alias view = {.storage = carrier, .strides_at = a->to->strides.count};
    box_row_major_strides(catalogue_shape(a->from, p->source), ndim, strides);
    RETURN_IF(vec_add(&a->to->views, &view, err));
    RETURN_IF(vec_add_n(&a->to->strides, strides, ndim, err));
    catalogue_tensor(&a->to->cat, p->target)->alias = (uint32_t)(a->to->views.count - 1);
    return FSDPCK_OK;
}

/* After the storages that stay: ties on the others. */
static fsdpck_status share_ties(const view_state *v, fsdpck_error *err)
{
    select_state *a = v->a;
    for (uint32_t k = 0; k < a->picks.count; k++) {
        const select_pick *p = VEC_AT(&a->picks, const select_pick, k);
        if (!p->shares_view || p->target == CAT_NONE || !storage_of(v, p->source)->lost)
            continue;
        const select_pick *head = VEC_AT(&a->picks, const select_pick, p->tied_to);
        if (head->target == CAT_NONE || head->target == p->target)
            continue;
        uint32_t at = catalogue_tensor(&a->to->cat, head->target)->alias, carrier;
        if (at == CAT_NONE) {
            RETURN_IF(add_view_carrier(a, head, &carrier, err));
            RETURN_IF(view_whole(a, head, carrier, err));
        } else {
            carrier = VEC_AT(&a->to->views, const target_alias, at)->storage;
        }
        RETURN_IF(view_whole(a, p, carrier, err));
    }
    return FSDPCK_OK;
}

/* --- views that overlap, and no longer do --- */

typedef struct lost_view {
    uint32_t alias, pick;
    uint64_t begin, end; /* bytes, without gaps between strides */
} lost_view;

static int by_begin(const void *left, const void *right)
{
    const lost_view *a = left, *b = right;
    ORDER_BY(a->alias, b->alias);
    ORDER_BY(a->begin, b->begin);
    return a->pick < b->pick ? -1 : a->pick > b->pick;
}

static fsdpck_status list_lost(const view_state *v, vec *views, fsdpck_error *err)
{
    const select_state *a = v->a;
    for (uint32_t k = 0; k < a->picks.count; k++) {
        const select_pick *p = VEC_AT(&a->picks, const select_pick, k);
        const cat_tensor *t = catalogue_tensor(a->from, p->source);
        const shared_storage *s = storage_of(v, p->source);
        if (p->target == CAT_NONE || s == NULL || !s->lost || t->nchunks != 1 ||
            catalogue_tensor_nelems(a->from, p->source) == 0)
            continue;
        const uint64_t *shape = catalogue_shape(a->from, p->source);
        place where;
        RETURN_IF(select_resolve_storage(a, p->source, &where, err));
        uint64_t nelems = 1; /* the file holds them all: no overflow */
        for (unsigned i = 0; i < t->ndim; i++)
            nelems += (shape[i] - 1) * where.strides[i];
        const lost_view view = {t->alias, k, where.offset_bytes,
                                where.offset_bytes +
                                    nelems * dtype_get((dtype)t->dtype)->itemsize_bytes};
        RETURN_IF(vec_add(views, &view, err));
    }
    return FSDPCK_OK;
}

/* Whether two names have one location in the target, or are one view of the source. */
static fsdpck_status is_tie(const select_state *a, const lost_view *x, const lost_view *y, bool *is,
                            fsdpck_error *err)
{
    const select_pick *p = VEC_AT(&a->picks, const select_pick, x->pick);
    const select_pick *q = VEC_AT(&a->picks, const select_pick, y->pick);
    const uint32_t i = catalogue_tensor(&a->to->cat, p->target)->alias;
    const uint32_t k = catalogue_tensor(&a->to->cat, q->target)->alias;
    *is = i != CAT_NONE && k != CAT_NONE &&
          VEC_AT(&a->to->views, const target_alias, i)->storage ==
              VEC_AT(&a->to->views, const target_alias, k)->storage;
    return *is ? FSDPCK_OK : select_same_view(a, p->source, q->source, is, err);
}

static fsdpck_status record_overlap(const select_state *a, uint32_t pick, uint32_t over,
                                    fsdpck_error *err)
{
    const uint32_t name = VEC_AT(&a->picks, const select_pick, pick)->name;
    const uint32_t other = VEC_AT(&a->picks, const select_pick, over)->name;
    text_buf both = {0};
    text_append(&both, strtab_text(&a->names, name), strtab_nbytes(&a->names, name));
    text_puts(&both, " overlaps ");
    text_append(&both, strtab_text(&a->names, other), strtab_nbytes(&a->names, other));
    fsdpck_status st = text_check(&both, err);
    if (st == FSDPCK_OK)
        st = name_list_add(&a->result->overlap_names, both.text, both.nbytes, err);
    text_release(&both);
    return st;
}

static fsdpck_status find_overlaps(const view_state *v, fsdpck_error *err)
{
    vec views = VEC_OF(lost_view, v->a->from->owner);
    fsdpck_status st = v->a->request->sharding == NULL ? list_lost(v, &views, err) : FSDPCK_OK;
    if (st == FSDPCK_OK && views.count > 1)
        qsort(views.items, views.count, sizeof(lost_view), by_begin);
    size_t furthest = 0;
    for (size_t i = 1; st == FSDPCK_OK && i < views.count; i++) {
        const lost_view *far = VEC_AT(&views, const lost_view, furthest);
        const lost_view *view = VEC_AT(&views, const lost_view, i);
        const bool in_one = far->alias == view->alias;
        bool tied = true;
        if (in_one && view->begin < far->end)
            st = is_tie(v->a, far, view, &tied, err);
        if (st == FSDPCK_OK && !tied)
            st = record_overlap(v->a, view->pick, far->pick, err);
        if (!in_one || view->end > far->end)
            furthest = i;
    }
    vec_release(&views);
    return st;
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
    GOTO_IF(share_ties(&v, err), out);
    GOTO_IF(find_overlaps(&v, err), out);
out:
    budget_free(a->from->owner, v.storages, v.count * sizeof *v.storages);
    return st;
}
