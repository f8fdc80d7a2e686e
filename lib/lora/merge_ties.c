/* merge_ties.c: weights that share one storage. PEFT adds products in place, which changes all of them. A module of
 * modules_to_save is another module with storage of its own: it unties them. Where the training had a product in all of them,
 * merge_and_unload adds it once for each, and this library once. */
#include "lora/merge_equal.h"
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

static bool share_storage(const catalogue *c, uint32_t one, uint32_t other)
{
    const uint32_t alias = catalogue_tensor(c, one)->alias;
    return alias != CAT_NONE && alias == catalogue_tensor(c, other)->alias;
}

/* Whether it may be one of several tied weights: by the config of the model, without one by its name. */
static bool may_be_tied(const list_maker *k, uint32_t tensor)
{
    const merge_list *list = k->list;
    const catalogue *c = k->base->cat;
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    const char *text = catalogue_name(c, name);
    const size_t nbytes = catalogue_name_nbytes(c, name);
    if (tensor == list->embedding || tensor == list->head)
        return true;
    return list->is_untold && catalogue_tensor(c, tensor)->ndim == 2 &&
           (lora_is_embedding_weight(text, nbytes) || lora_is_head_weight(text, nbytes));
}

static bool has_both(const list_maker *k, uint32_t one, uint32_t other)
{
    return one != other && may_be_tied(k, one) && may_be_tied(k, other);
}

/* A file of a tied model may have both weights. Like transformers 5, takes them for tied if they are equal. */
static fsdpck_status is_tied_by_config(list_maker *k, uint32_t one, uint32_t other, bool *tied,
                                       fsdpck_error *err)
{
    merge_list *list = k->list;
    *tied = false;
    if (list->names_only || !has_both(k, one, other))
        return FSDPCK_OK;
    if (list->pair == MERGE_PAIR_UNKNOWN && list->no_reading)
        return FAIL_WITH(
            err, UNSUPPORTED, LORA_TIED,
            ("the base model has an embedding and an output projection that config.json ties "
             "(tie_word_embeddings), and files of other hosts cannot be compared"),
            (next, "merge on a host that has all files of the base model, or write "
                   "\"tie_word_embeddings\": false into its config.json if both differ"));
    if (list->pair == MERGE_PAIR_UNKNOWN) {
        bool equal;
        RETURN_IF(merge_is_equal(k->base->cat, k->base->src, one, other, k->owner, &equal, err));
        list->pair = equal ? MERGE_PAIR_EQUAL : MERGE_PAIR_DIFFERENT;
    }
    *tied = list->pair == MERGE_PAIR_EQUAL;
    return FSDPCK_OK;
}

/* Whether the adapter has tokens for both targets. */
static bool has_own_tokens(const list_maker *k, const pending_step *p, uint32_t target)
{
    for (size_t i = 0; p->step.kind == MERGE_ROWS && i < k->pending.count; i++) {
        const pending_step *own = VEC_AT(&k->pending, const pending_step, i);
        if (own->target == target && own->step.kind == MERGE_ROWS &&
            own->step.adapter == p->step.adapter)
            return true;
    }
    return false;
}

/* Without a config: they stay two weights, and the caller warns if they are equal. */
static fsdpck_status note_untold(list_maker *k, const pending_step *p, uint32_t target,
                                 fsdpck_error *err)
{
    merge_list *list = k->list;
    const merge_target *one = VEC_AT(&list->targets, const merge_target, p->target);
    const merge_target *two = VEC_AT(&list->targets, const merge_target, target);
    bool equal;
    const bool in_both = p->step.kind == MERGE_PRODUCT && p->step.together != MERGE_ALONE;
    if (list->no_reading || list->names_only || list->tied != STRTAB_NONE || p->step.unties || in_both ||
        has_own_tokens(k, p, target) || !has_both(k, one->tensor, two->tensor) ||
        share_storage(k->base->cat, one->tensor, two->tensor))
        return FSDPCK_OK;
    RETURN_IF(merge_is_equal(k->base->cat, k->base->src, one->tensor, two->tensor, k->owner, &equal,
                             err));
    if (equal) {
        list->tied = one->name;
        list->tied_to = two->name;
        list->by_bytes = true;
    }
    return FSDPCK_OK;
}

/* PEFT trains tokens of the embedding for an output projection too, unless that has tokens of its own. */
static bool shares_tokens(const list_maker *k, const pending_step *p, uint32_t target)
{
    const catalogue *c = k->base->cat;
    const uint32_t one = VEC_AT(&k->list->targets, const merge_target, p->target)->tensor;
    const uint32_t other = VEC_AT(&k->list->targets, const merge_target, target)->tensor;
    const cat_tensor *a = catalogue_tensor(c, one), *b = catalogue_tensor(c, other);
    if (p->step.kind != MERGE_ROWS || one != k->list->embedding || !has_both(k, one, other) ||
        !shape_equal(catalogue_shape(c, one), a->ndim, catalogue_shape(c, other), b->ndim))
        return false;
    return !has_own_tokens(k, p, target);
}

/* Where the training had the change in one of both weights alone. */
static void note_tied(const list_maker *k, const pending_step *p, uint32_t other)
{
    merge_list *list = k->list;
    const merge_target *one = VEC_AT(&list->targets, const merge_target, p->target);
    const merge_target *two = VEC_AT(&list->targets, const merge_target, other);
    if (list->tied != STRTAB_NONE || p->step.together != MERGE_ALONE)
        return;
    list->tied = one->name;
    list->tied_to = two->name;
    list->unties = p->step.unties;
    list->by_config = !share_storage(k->base->cat, one->tensor, two->tensor);
}

/* Whether a change of one target is one of the other too. */
static fsdpck_status shares(list_maker *k, const pending_step *p, uint32_t target, bool *shared,
                            fsdpck_error *err)
{
    const uint32_t one = VEC_AT(&k->list->targets, const merge_target, p->target)->tensor;
    const uint32_t other = VEC_AT(&k->list->targets, const merge_target, target)->tensor;
    *shared = false;
    if (target == p->target)
        return FSDPCK_OK;
    if (catalogue_tensor(k->base->cat, one)->alias != CAT_NONE)
        RETURN_IF(is_tied(k, one, other, shared, err));
    if (*shared)
        return FSDPCK_OK;
    if (k->list->is_untold)
        return note_untold(k, p, target, err);
    *shared = shares_tokens(k, p, target);
    if (*shared)
        return FSDPCK_OK;
    return is_tied_by_config(k, one, other, shared, err);
}

/* Whether the adapter changes the target by a step that the training had in all tied weights. */
static bool has_together(const list_maker *k, const pending_step *p, uint32_t target)
{
    for (size_t i = 0; i < k->pending.count; i++) {
        const pending_step *other = VEC_AT(&k->pending, const pending_step, i);
        if (other->target == target && other->step.together == MERGE_TOGETHER &&
            other->step.kind == MERGE_PRODUCT && other->step.adapter == p->step.adapter)
            return true;
    }
    return false;
}

/* Whether another step makes the same change of the target of this one, which is MERGE_AGAIN. */
static fsdpck_status is_again(list_maker *k, const pending_step *p, const uint8_t *replaced,
                              bool *again, fsdpck_error *err)
{
    *again = has_together(k, p, p->target);
    for (uint32_t j = 0; j < k->list->targets.count && !*again; j++) {
        if (!has_together(k, p, j) || replaced[p->target] == UNTIED || replaced[j] == UNTIED)
            continue;
        RETURN_IF(shares(k, p, j, again, err));
    }
    return FSDPCK_OK;
}

/* The step, then the same one for each weight that is tied to its own, so that all have one order. */
static fsdpck_status share_step(list_maker *k, const pending_step *p, const uint8_t *replaced,
                                vec *shared, fsdpck_error *err)
{
    bool again = false;
    if (p->step.together == MERGE_AGAIN)
        RETURN_IF(is_again(k, p, replaced, &again, err));
    if (again)
        return FSDPCK_OK;
    RETURN_IF(vec_add(shared, p, err));
    const uint32_t tensor = VEC_AT(&k->list->targets, const merge_target, p->target)->tensor;
    const bool is_alias = catalogue_tensor(k->base->cat, tensor)->alias != CAT_NONE;
    if (!is_alias && !may_be_tied(k, tensor))
        return FSDPCK_OK;
    for (uint32_t j = 0; j < k->list->targets.count; j++) {
        const pending_step made = {j, p->step, p->ties_tokens};
        bool tied;
        RETURN_IF(shares(k, p, j, &tied, err));
        if (tied)
            note_tied(k, p, j);
        const bool has_own = p->step.kind == MERGE_REPLACE && replaced[j] == IN_PLACE;
        if (tied && replaced[p->target] != UNTIED && replaced[j] != UNTIED && !has_own)
            RETURN_IF(vec_add(shared, &made, err));
    }
    return FSDPCK_OK;
}

/* PEFT takes the norm of the second one of the weight that the first has changed, and no training had that. With
 * ensure_weight_tying both have the same factors, and there is a warning. */
static fsdpck_status check_norms(const list_maker *k, fsdpck_error *err)
{
    for (size_t i = 0; i < k->pending.count; i++) {
        const pending_step *p = VEC_AT(&k->pending, const pending_step, i);
        for (size_t j = 0; j < i && p->step.kind == MERGE_PRODUCT && p->step.magnitude != CAT_NONE;
             j++) {
            const pending_step *q = VEC_AT(&k->pending, const pending_step, j);
            if (p->ties_tokens || q->target != p->target || q->step.kind != MERGE_PRODUCT ||
                q->step.adapter != p->step.adapter || q->step.magnitude == CAT_NONE ||
                q->step.a == p->step.a)
                continue;
            const uint32_t name = VEC_AT(&k->list->targets, const merge_target, p->target)->name;
            return FAIL_WITH(
                err, UNSUPPORTED, LORA_TIED,
                ("adapter '%s' has DoRA for '%s' and for a weight that the model ties to it: the "
                 "norm of one is that of a weight without the other",
                 strtab_text(&k->list->adapters, p->step.adapter),
                 strtab_text(&k->list->names, name)),
                (tensor, strtab_text(&k->list->names, name)),
                (next, "merge into a base model with both weights, whose config.json has "
                       "\"tie_word_embeddings\": false"));
        }
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
    return st == FSDPCK_OK ? check_norms(k, err) : st;
}
