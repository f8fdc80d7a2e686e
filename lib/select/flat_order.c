#include "select/flat_order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/fqn.h"

#define ITEM(o, i) VEC_AT(&(o)->items, flat_order_item, i)

void flat_order_init(flat_order *o, select_state *a, const value_pool *pool, bool flat,
                     uint32_t group)
{
    budget *owner = a->from->owner;
    *o = (flat_order){.a = a,
                      .pool = pool,
                      .flat = flat,
                      .group = group,
                      .items = VEC_OF(flat_order_item, owner),
                      .is_plain = true};
    strtab_init(&o->names, owner);
    strtab_init(&o->labels, owner);
}

void flat_order_release(flat_order *o)
{
    strtab_release(&o->names);
    strtab_release(&o->labels);
    vec_release(&o->items);
}

/* --- the list --- */

static fsdpck_status add(flat_order *o, const char *label, size_t nbytes, const char *fqn,
                         size_t fqn_nbytes, flat_order_item item, fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&o->labels, label, nbytes, &id, err));
    if (id < o->items.count)
        return FSDPCK_OK;
    item.at = id;
    RETURN_IF(strtab_intern(&o->names, fqn, fqn_nbytes, &item.name, err));
    return vec_add(&o->items, &item, err);
}

static uint32_t rank_of(const flat_order *o, const char *fqn, size_t nbytes)
{
    const strtab *order = o->a->request->sharding->param_order;
    return order == NULL ? CAT_NONE : strtab_find(order, fqn, nbytes);
}

fsdpck_status flat_order_add_param(flat_order *o, const char *fqn, size_t nbytes, uint32_t id,
                                   fsdpck_error *err)
{
    const uint32_t rank = rank_of(o, fqn, nbytes);
    return add(o, fqn, nbytes, fqn, nbytes, (flat_order_item){.id = id, .rank = rank}, err);
}

/* PREFIX._flat_param, as in descriptions. */
static void unit_label(const char *prefix, size_t nbytes, text_buf *out)
{
    text_append(out, prefix, nbytes);
    text_puts(out, nbytes == 0 ? "_flat_param" : "._flat_param");
}

fsdpck_status flat_order_add_unit(flat_order *o, uint32_t unit_index, uint32_t param,
                                  fsdpck_error *err)
{
    const unit_list *l = o->a->to->units;
    size_t nbytes, fqn_nbytes;
    const char *fqn = unit_name(l, VEC_AT(&l->params, const unit_param, param)->fqn, &fqn_nbytes);
    const char *prefix = unit_name(l, unit_at(l, unit_index)->prefix, &nbytes);
    const uint32_t rank = rank_of(o, fqn, fqn_nbytes);
    text_buf label = {0};
    o->is_plain = o->is_plain && rank != CAT_NONE && rank >= o->last;
    o->last = rank;
    unit_label(prefix, nbytes, &label);
    fsdpck_status st = text_check(&label, err);
    if (st == FSDPCK_OK)
        st = add(o, label.text, label.nbytes, fqn, fqn_nbytes,
                 (flat_order_item){.id = unit_index, .rank = unit_index}, err);
    text_release(&label);
    return st;
}

/* --- ranks --- */

static int compare_items(const void *left, const void *right)
{
    const flat_order_item *a = left, *b = right;
    ORDER_BY(a->rank, b->rank);
    return a->at < b->at ? -1 : a->at > b->at;
}

static void sort_items(flat_order *o)
{
    if (o->items.count > 1)
        qsort(o->items.items, o->items.count, sizeof(flat_order_item), compare_items);
}

/* The item of a listed name, CAT_NONE. */
static fsdpck_status find_item(const flat_order *o, const char *text, size_t nbytes, text_buf *key,
                               uint32_t *item, fsdpck_error *err)
{
    const unit_list *l = o->a->to->units;
    key->nbytes = 0;
    fqn_clean(text, nbytes, false, key);
    RETURN_IF(text_check(key, err));
    if (!o->flat) {
        const unit_param *p = unit_list_find_param(l, key->text, key->nbytes, NULL);
        if (p != NULL)
            text = unit_name(l, p->fqn, &nbytes);
        else
            text = key->text, nbytes = key->nbytes;
        *item = strtab_find(&o->labels, text, nbytes);
        return FSDPCK_OK;
    }
    size_t at = key->nbytes;
    while (at > 0 && key->text[at - 1] != '.')
        at--;
    key->nbytes = at > 0 ? at - 1 : 0;
    text_buf label = {0};
    unit_label(key->text, key->nbytes, &label);
    RETURN_IF(text_check(&label, err));
    *item = strtab_find(&o->labels, label.text, label.nbytes);
    text_release(&label);
    return FSDPCK_OK;
}

static void forget_ranks(const flat_order *o, uint32_t *ranks)
{
    for (size_t i = 0; i < o->items.count; i++)
        ranks[i] = CAT_NONE;
}

static void take_ranks(flat_order *o, const uint32_t *ranks)
{
    for (size_t i = 0; i < o->items.count; i++)
        ITEM(o, i)->rank = ranks[i];
    sort_items(o);
}

static fsdpck_status fail_described(const flat_order *o, const char *found, fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, MODEL_OPTIM,
        ("param_groups of the optimizer differ from the model description"),
        (expected, "parameters of param_group %" PRIu32 " as in 'optimizers'", o->group),
        (found, "%s", found), (next, "describe the optimizer that was saved: fsdpck-model(5)"));
}

/* The order of the description's list; it must list the same parameters. */
static fsdpck_status rank_described(flat_order *o, const optim_groups *g, const optim_list *list,
                                    uint32_t *ranks, fsdpck_error *err)
{
    text_buf key = {0};
    fsdpck_status st = FSDPCK_OK;
    if (list->count != o->group_count)
        return fail_described(o, "a different number of groups", err);
    const optim_group *group = optim_groups_at(g, list, o->group);
    uint32_t known = 0, item;
    forget_ranks(o, ranks);
    for (uint32_t k = 0; st == FSDPCK_OK && k < group->count; k++) {
        size_t nbytes;
        const char *text = optim_groups_member(g, group, k, &nbytes);
        st = find_item(o, text, nbytes, &key, &item, err);
        if (st == FSDPCK_OK && item == CAT_NONE)
            st = fail_described(o, text, err);
        if (st != FSDPCK_OK || ranks[item] != CAT_NONE)
            continue;
        ranks[item] = k;
        known++;
    }
    text_release(&key);
    RETURN_IF(st);
    if (known != o->items.count)
        return fail_described(o, "more parameters", err);
    take_ranks(o, ranks);
    return FSDPCK_OK;
}

/* The order of `param_names`, if they name exactly the listed parameters. */
static fsdpck_status rank_given(flat_order *o, value given, uint32_t *ranks, bool *known,
                                fsdpck_error *err)
{
    text_buf key = {0};
    fsdpck_status st = FSDPCK_OK;
    uint32_t item;
    *known = !o->flat && value_kind_of(given) == VALUE_LIST &&
             value_count(o->pool, given) == o->items.count;
    forget_ranks(o, ranks);
    for (uint32_t i = 0; st == FSDPCK_OK && *known && i < o->items.count; i++) {
        size_t nbytes;
        const value name = value_item(o->pool, given, i);
        *known = value_kind_of(name) == VALUE_STR;
        if (!*known)
            break;
        const char *text = value_text(o->pool, name, &nbytes);
        st = find_item(o, text, nbytes, &key, &item, err);
        *known = st == FSDPCK_OK && item != CAT_NONE && ranks[item] == CAT_NONE;
        if (*known)
            ranks[item] = i;
    }
    text_release(&key);
    if (st == FSDPCK_OK && *known)
        take_ranks(o, ranks);
    return st;
}

/* --- the order of the model --- */

static bool has_state(const select_state *a)
{
    for (size_t k = 0; k < a->picks.count; k++) {
        const select_pick *pick = VEC_AT(&a->picks, const select_pick, k);
        if (pick->state != 0 && pick->state != OPTIM_STATE_PLAIN)
            return true;
    }
    return false;
}

static fsdpck_status fail_order(const flat_order *o, uint32_t moved, fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, MODEL_NEEDED,
        ("param_group %" PRIu32 " lists names in a different order than the model, and the numbers "
         "may follow either order",
         o->group),
        (found, "'%.100s' before '%.100s'", strtab_text(&o->names, ITEM(o, moved - 1)->name),
         strtab_text(&o->names, ITEM(o, moved)->name)),
        (next,
         "give --model FILE that lists 'optimizers' (scripts/describe_model.py), or --assume order "
         "if the optimizer received the parameters in the order of model.parameters()"));
}

static fsdpck_status rank_model(flat_order *o, fsdpck_error *err)
{
    uint32_t moved = 0;
    for (uint32_t i = 0; i < o->items.count; i++) {
        if (ITEM(o, i)->rank == CAT_NONE) {
            o->a->result->unordered =
                o->a->result->unordered || (o->items.count > 1 && !o->a->parts->assumes_order);
            return FSDPCK_OK;
        }
        if (moved == 0 && i > 0 && ITEM(o, i)->rank < ITEM(o, i - 1)->rank)
            moved = i;
    }
    if (moved > 0 && !o->a->parts->assumes_order && !(o->flat && o->is_plain) && has_state(o->a))
        return fail_order(o, moved, err);
    sort_items(o);
    return FSDPCK_OK;
}

fsdpck_status flat_order_sort(flat_order *o, value given, fsdpck_error *err)
{
    const optim_groups *g = o->a->request->sharding->optimizers;
    const optim_list *list =
        g == NULL ? NULL : optim_groups_find(g, o->key == NULL ? "" : o->key, o->key_nbytes, true);
    const uint64_t nbytes = o->items.count * sizeof(uint32_t);
    bool known = list != NULL;
    if (o->items.count == 0 && list == NULL)
        return FSDPCK_OK;
    uint32_t *ranks = budget_alloc(o->a->from->owner, nbytes + 1, err);
    if (ranks == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = list != NULL ? rank_described(o, g, list, ranks, err)
                                    : rank_given(o, given, ranks, &known, err);
    if (st == FSDPCK_OK && !known)
        st = rank_model(o, err);
    budget_free(o->a->from->owner, ranks, nbytes + 1);
    return st;
}
