/* merge_ties.c: weights that share one storage. PEFT adds products in place, which changes all of them. A module of
 * modules_to_save is another module with storage of its own: it unties them. */
#include "lora/merge_list_internal.h"

/* By target: whether a step replaces it. */
enum { IN_PLACE = 1, UNTIED };

static void find_replaced(const list_maker *k, uint8_t *replaced)
{
    for (size_t i = 0; i < k->pending.count; i++) {
        const pending_step *p = VEC_AT(&k->pending, const pending_step, i);
        if (p->step.kind == MERGE_REPLACE)
            replaced[p->target] = p->step.unties ? UNTIED : IN_PLACE;
    }
}

static fsdpck_status find_view(const list_maker *k, uint32_t tensor, place *where,
                               fsdpck_error *err)
{
    const catalogue *c = k->base->cat;
    const cat_tensor *t = catalogue_tensor(c, tensor);
    *where = (place){0};
    RETURN_IF(k->base->src->locate(k->base->src->ctx, t->first_chunk, where, err));
    if (where->rows)
        box_row_major_strides(catalogue_shape(c, tensor), t->ndim, where->strides);
    return FSDPCK_OK;
}

/* Whether both are the same elements of one storage; other views of it may be parts of a fused weight. */
static fsdpck_status is_tied(const list_maker *k, uint32_t one, uint32_t other, bool *tied,
                             fsdpck_error *err)
{
    const catalogue *c = k->base->cat;
    const cat_tensor *a = catalogue_tensor(c, one), *b = catalogue_tensor(c, other);
    place p, q;
    *tied = a->alias == b->alias && a->dtype == b->dtype && a->nchunks == 1 && b->nchunks == 1 &&
            shape_equal(catalogue_shape(c, one), a->ndim, catalogue_shape(c, other), b->ndim);
    if (!*tied)
        return FSDPCK_OK;
    RETURN_IF(find_view(k, one, &p, err));
    RETURN_IF(find_view(k, other, &q, err));
    *tied = p.file == q.file && p.offset_bytes == q.offset_bytes &&
            shape_equal(p.strides, a->ndim, q.strides, b->ndim);
    return FSDPCK_OK;
}

/* A file of a tied model may have both weights. */
static bool shares_tokens(const list_maker *k, const merge_step *s, uint32_t one, uint32_t other)
{
    const catalogue *c = k->base->cat;
    const merge_list *list = k->list;
    const cat_tensor *a = catalogue_tensor(c, one), *b = catalogue_tensor(c, other);
    const bool both = (one == list->embedding && other == list->head) ||
                      (one == list->head && other == list->embedding);
    return both && s->kind == MERGE_ROWS &&
           shape_equal(catalogue_shape(c, one), a->ndim, catalogue_shape(c, other), b->ndim);
}

/* PEFT trains tokens of all tied weights together. */
static void note_tied(merge_list *list, const pending_step *p, uint32_t other)
{
    const bool in_place = p->step.kind == MERGE_REPLACE && !p->step.unties;
    if (list->tied != STRTAB_NONE || p->step.kind == MERGE_ROWS || in_place)
        return;
    list->tied = VEC_AT(&list->targets, const merge_target, p->target)->name;
    list->tied_to = VEC_AT(&list->targets, const merge_target, other)->name;
    list->unties = p->step.unties;
}

/* The step, then the same one for each weight that is tied to its own, so that all have one order. */
static fsdpck_status share_step(const list_maker *k, const pending_step *p, const uint8_t *replaced,
                                vec *shared, fsdpck_error *err)
{
    RETURN_IF(vec_add(shared, p, err));
    const uint32_t tensor = VEC_AT(&k->list->targets, const merge_target, p->target)->tensor;
    const bool is_alias = catalogue_tensor(k->base->cat, tensor)->alias != CAT_NONE;
    if (!is_alias && p->step.kind != MERGE_ROWS)
        return FSDPCK_OK;
    for (uint32_t j = 0; j < k->list->targets.count; j++) {
        const uint32_t other = VEC_AT(&k->list->targets, const merge_target, j)->tensor;
        const pending_step made = {j, p->step};
        bool tied = false;
        if (j == p->target)
            continue;
        if (is_alias)
            RETURN_IF(is_tied(k, tensor, other, &tied, err));
        tied = tied || shares_tokens(k, &p->step, tensor, other);
        if (tied)
            note_tied(k->list, p, j);
        const bool has_own = p->step.kind == MERGE_REPLACE && replaced[j] == IN_PLACE;
        if (tied && replaced[p->target] != UNTIED && replaced[j] != UNTIED && !has_own)
            RETURN_IF(vec_add(shared, &made, err));
    }
    return FSDPCK_OK;
}

fsdpck_status list_maker_add_tied(list_maker *k, fsdpck_error *err)
{
    const size_t targets = k->list->targets.count;
    vec shared = VEC_OF(pending_step, k->owner);
    uint8_t *replaced = budget_alloc(k->owner, targets + 1, err);
    if (replaced == NULL)
        return FSDPCK_LIMIT;
    find_replaced(k, replaced);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < k->pending.count && st == FSDPCK_OK; i++)
        st = share_step(k, VEC_AT(&k->pending, const pending_step, i), replaced, &shared, err);
    budget_free(k->owner, replaced, targets + 1);
    vec_release(&k->pending);
    k->pending = shared;
    return st;
}
