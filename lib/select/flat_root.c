/* The optimizer's state as in rank files of FSDP1: torch's optimizer.state_dict(), by number.
 *
 * Numbers are given through the param_groups in their order. Without use_orig_params they count
 * flat parameters; else the original parameters, and a rank has state only for parameters with a
 * shard on it. flat_order.h: their order within a group. In the order of the model, flat parameters
 * follow the units, as model.parameters() gives them: a flat parameter is its module's own and so
 * comes before those of modules below. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/fqn.h"
#include "select/flat_order.h"
#include "select/nest.h"
#include "select/select_internal.h"

#define NO_NUMBER UINT32_MAX

/* One entry for one number. */
typedef struct entry {
    uint32_t number;
    uint32_t seq;   /* in the order of the source */
    uint32_t param; /* its shards determine the ranks; CAT_NONE: all ranks */
    uint32_t unit;  /* without use_orig_params, else CAT_NONE */
    value key, leaf;
} entry;

typedef struct root_state {
    select_state *a;
    value_pool *pool;   /* the target's */
    value key;          /* of the optimizer in the checkpoint, or none */
    value groups;       /* list of dicts, as the source has them */
    value states;       /* dict: FQN to dict of entries that are no tensors */
    value made_groups;  /* list of dicts, by number */
    uint32_t *numbers;  /* of each parameter of the units */
    uint32_t *group_of; /* of each unit without use_orig_params, NO_NUMBER */
    strtab others;      /* parameters of no unit; ids count them as `other_numbers` does */
    vec other_numbers;  /* uint32_t */
    uint32_t next;
    vec entries;    /* entry */
    vec rank_dicts; /* value: the `state` of each rank, or one for all */
    bool per_rank;
} root_state;

static bool is_flat(const unit *u)
{
    return !u->use_orig_params;
}

/* --- entries that are no tensors --- */

static fsdpck_status put_leaf(select_state *a, nest *n, value path, uint32_t name, value leaf,
                              fsdpck_error *err)
{
    target_path p;
    RETURN_IF(target_path_copy(a, path, name, PART_OTHER, &p, err));
    return nest_put(n, p.elements, p.count, leaf, err);
}

static fsdpck_status fill_nest(select_state *a, nest *n, fsdpck_error *err)
{
    for (size_t k = 0; k < a->picks.count; k++) {
        const select_pick *pick = VEC_AT(&a->picks, const select_pick, k);
        const cat_tensor *t = catalogue_tensor(a->from, pick->source);
        if (pick->state == OPTIM_STATE_PLAIN)
            RETURN_IF(put_leaf(a, n, t->path, t->name, value_of_tensor(pick->target), err));
    }
    for (size_t k = 0; k < a->objects.count; k++) {
        const cat_object *o = catalogue_object(a->from, *VEC_AT(&a->objects, const uint32_t, k));
        value content;
        RETURN_IF(select_inner_add(a, k, err));
        RETURN_IF(
            value_copy(&a->from->pool, o->content, &a->to->cat.pool, a->inner_map, &content, err));
        RETURN_IF(put_leaf(a, n, o->path, o->name, content, err));
    }
    return FSDPCK_OK;
}

/* Descends to the dict with the groups; each dict around it has a single key. */
static fsdpck_status find_optimizer(root_state *s, value root, fsdpck_error *err)
{
    value at = root, dict, item;
    for (;;) {
        if (!value_as_dict(s->pool, at, &dict) || value_count(s->pool, dict) == 0)
            return optim_state_refuse(FSDPCK_BADINPUT, "optimizer state has no param_groups", NULL,
                                      err);
        if (value_dict_find(s->pool, dict, "param_groups", &s->groups))
            break;
        if (value_count(s->pool, dict) > 1)
            return FAIL_WITH(err, UNSUPPORTED, MODEL_OPTIM,
                             ("optimizer state is flattened, or belongs to several optimizers"),
                             (next, "give --optim-keys name to restore the groups of flattened "
                                    "state, or select only the model: --part model"));
        at = value_item(s->pool, dict, 0);
        s->key = value_key(s->pool, dict, 0);
    }
    if (value_kind_of(s->groups) != VALUE_LIST)
        return optim_state_refuse(FSDPCK_BADINPUT, "param_groups is not a list", NULL, err);
    for (size_t i = 0; i < value_count(s->pool, dict); i++) {
        const value key = value_key(s->pool, dict, i);
        if (!value_is_str(s->pool, key, "param_groups") && !value_is_str(s->pool, key, "state"))
            return optim_state_refuse(FSDPCK_UNSUPPORTED,
                                      "an optimizer has keys other than 'state' and 'param_groups'",
                                      NULL, err);
    }
    s->states = VALUE_OF_NONE;
    if (value_dict_find(s->pool, dict, "state", &item) && !value_as_dict(s->pool, item, &s->states))
        return optim_state_refuse(FSDPCK_BADINPUT, "an optimizer's 'state' is not a dict", NULL,
                                  err);
    return FSDPCK_OK;
}

/* --- numbers --- */

/* Location of the number of a name. *param: index in the units, or CAT_NONE. */
static fsdpck_status find_slot(root_state *s, const char *name, size_t nbytes, uint32_t *param,
                               uint32_t **slot, fsdpck_error *err)
{
    text_buf fqn = {0};
    uint32_t id = 0;
    text_append(&fqn, name, nbytes);
    fsdpck_status st = optim_state_find_param(s->a, &fqn, param, err);
    if (st == FSDPCK_OK && *param == CAT_NONE)
        st = strtab_intern(&s->others, fqn.text, fqn.nbytes, &id, err);
    text_release(&fqn);
    RETURN_IF(st);
    *slot = *param == CAT_NONE ? NULL : &s->numbers[*param];
    if (*slot != NULL)
        return FSDPCK_OK;
    while (s->other_numbers.count <= id) {
        RETURN_IF(vec_add(&s->other_numbers, &(uint32_t){NO_NUMBER}, err));
    }
    *slot = VEC_AT(&s->other_numbers, uint32_t, id);
    return FSDPCK_OK;
}

static fsdpck_status assign_number(root_state *s, uint32_t *slot, value list, fsdpck_error *err)
{
    value number;
    if (*slot != NO_NUMBER)
        return FSDPCK_OK;
    *slot = s->next++;
    RETURN_IF(value_new_int(s->pool, *slot, &number, err));
    return value_append(s->pool, list, number, err);
}

/* The flat parameter of a parameter; a parameter of no unit is refused. */
static fsdpck_status find_unit(root_state *s, uint32_t group, uint32_t param, const char *name,
                               uint32_t *unit_index, fsdpck_error *err)
{
    const unit_list *l = s->a->to->units;
    if (param == CAT_NONE)
        return optim_state_refuse(
            FSDPCK_UNSUPPORTED, "cannot number a parameter outside all units among flat parameters",
            name, err);
    *unit_index = (uint32_t)(unit_of_param(l, param) - unit_at(l, 0));
    uint32_t *of = &s->group_of[*unit_index];
    if (*of != NO_NUMBER && *of != group)
        return optim_state_refuse(
            FSDPCK_BADINPUT, "parameters of one flat parameter are in two param_groups", name, err);
    *of = group;
    return FSDPCK_OK;
}

/* A name in the lists and keys of the source, as names of tensors are compared: without wrappers. */
static fsdpck_status clean_name(const root_state *s, value name, text_buf *out, fsdpck_error *err)
{
    size_t nbytes;
    const char *text = value_text(s->pool, name, &nbytes);
    out->nbytes = 0;
    fqn_clean(text, nbytes, s->a->parts->model_has_ddp, out);
    text_append(out, "", 0);
    return text_check(out, err);
}

/* name: clean. */
static fsdpck_status list_clean_name(root_state *s, flat_order *o, const char *text, size_t nbytes,
                                     fsdpck_error *err)
{
    const unit_list *l = s->a->to->units;
    uint32_t param, *slot, unit_index = 0;
    RETURN_IF(find_slot(s, text, nbytes, &param, &slot, err));
    if (param != CAT_NONE && is_flat(unit_of_param(l, param)) != o->flat)
        return optim_state_refuse(FSDPCK_UNSUPPORTED,
                                  "only some units of the model have use_orig_params", text, err);
    if (o->flat) {
        RETURN_IF(find_unit(s, o->group, param, text, &unit_index, err));
        return flat_order_add_unit(o, unit_index, param, err);
    }
    if (param != CAT_NONE) {
        text = unit_name(l, VEC_AT(&l->params, const unit_param, param)->fqn, &nbytes);
        return flat_order_add_param(o, text, nbytes, param, err);
    }
    const uint32_t other = (uint32_t)(slot - (uint32_t *)s->other_numbers.items);
    return flat_order_add_param(o, strtab_text(&s->others, other), strtab_nbytes(&s->others, other),
                                (uint32_t)l->params.count + other, err);
}

static fsdpck_status list_name(root_state *s, flat_order *o, value name, fsdpck_error *err)
{
    text_buf clean = {0};
    if (value_kind_of(name) != VALUE_STR)
        return optim_state_refuse_numbers(NULL, err);
    fsdpck_status st = clean_name(s, name, &clean, err);
    if (st == FSDPCK_OK)
        st = list_clean_name(s, o, clean.text, clean.nbytes, err);
    text_release(&clean);
    return st;
}

/* Numbers of the items in their order. */
static fsdpck_status assign_numbers(root_state *s, const flat_order *o, value list,
                                    fsdpck_error *err)
{
    const unit_list *l = s->a->to->units;
    for (size_t i = 0; i < o->items.count; i++) {
        const uint32_t id = VEC_AT(&o->items, const flat_order_item, i)->id;
        const unit *u = o->flat ? unit_at(l, id) : NULL;
        const uint32_t param = u == NULL ? id : u->first_param;
        const uint32_t other = param - (uint32_t)l->params.count;
        RETURN_IF(assign_number(s,
                                param < l->params.count
                                    ? &s->numbers[param]
                                    : VEC_AT(&s->other_numbers, uint32_t, other),
                                list, err));
        for (uint32_t k = 1; u != NULL && k < u->nparams; k++)
            s->numbers[param + k] = s->numbers[param];
    }
    return FSDPCK_OK;
}

static fsdpck_status number_params(root_state *s, flat_order *o, value from, value params,
                                   value list, fsdpck_error *err)
{
    value given = VALUE_OF_NONE;
    o->key = value_text(s->pool, s->key, &o->key_nbytes);
    o->group_count = (uint32_t)value_count(s->pool, s->groups);
    for (size_t i = 0; i < value_count(s->pool, params); i++)
        RETURN_IF(list_name(s, o, value_item(s->pool, params, i), err));
    (void)value_dict_find(s->pool, from, "param_names", &given);
    RETURN_IF(flat_order_sort(o, given, err));
    return assign_numbers(s, o, list, err);
}

static fsdpck_status number_group(root_state *s, uint32_t group, fsdpck_error *err)
{
    value from = VALUE_OF_NONE, params = VALUE_OF_NONE, made, list, word;
    const unit_list *l = s->a->to->units;
    const bool flat = unit_count(l) > 0 && is_flat(unit_at(l, 0));

    if (!value_as_dict(s->pool, value_item(s->pool, s->groups, group), &from) ||
        !value_dict_find(s->pool, from, "params", &params))
        return optim_state_refuse(FSDPCK_BADINPUT, "a param_group does not list its parameters",
                                  NULL, err);
    RETURN_IF(value_new_dict(s->pool, &made, err));
    RETURN_IF(value_new_list(s->pool, &list, err));
    for (size_t i = 0; i < value_count(s->pool, from); i++) {
        const value key = value_key(s->pool, from, i);
        const bool is_list = value_is_str(s->pool, key, "params") ||
                             (flat && value_is_str(s->pool, key, "param_names"));
        if (!is_list)
            RETURN_IF(value_dict_put(s->pool, made, key, value_item(s->pool, from, i), err));
    }
    flat_order o;
    flat_order_init(&o, s->a, s->pool, flat, group);
    const fsdpck_status st = number_params(s, &o, from, params, list, err);
    flat_order_release(&o);
    RETURN_IF(st);
    RETURN_IF(value_new_str(s->pool, "params", 6, &word, err));
    RETURN_IF(value_dict_put(s->pool, made, word, list, err));
    return value_append(s->pool, s->made_groups, made, err);
}

/* --- states --- */

static fsdpck_status add_entry(root_state *s, const char *fqn, size_t nbytes, value key, value leaf,
                               fsdpck_error *err)
{
    const unit_list *l = s->a->to->units;
    uint32_t param, *slot;
    RETURN_IF(find_slot(s, fqn, nbytes, &param, &slot, err));
    if (*slot == NO_NUMBER)
        return optim_state_refuse(
            FSDPCK_BADINPUT, "optimizer state belongs to a parameter that is in no param_group",
            fqn, err);
    const unit *u = param == CAT_NONE ? NULL : unit_of_param(l, param);
    entry *e = vec_push(&s->entries, err);
    if (e == NULL)
        return FSDPCK_LIMIT;
    *e = (entry){.number = *slot,
                 .seq = (uint32_t)s->entries.count,
                 .param = u != NULL && u->use_orig_params && unit_is_sharded(u) ? param : CAT_NONE,
                 .unit = u != NULL && is_flat(u) ? (uint32_t)(u - unit_at(l, 0)) : CAT_NONE,
                 .key = key,
                 .leaf = leaf};
    s->per_rank = s->per_rank || e->param != CAT_NONE;
    return FSDPCK_OK;
}

static fsdpck_status add_tensors(root_state *s, fsdpck_error *err)
{
    select_state *a = s->a;
    optim_state_name name = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t k = 0; st == FSDPCK_OK && k < a->picks.count; k++) {
        const select_pick *pick = VEC_AT(&a->picks, const select_pick, k);
        const cat_tensor *t = catalogue_tensor(a->from, pick->source);
        if (pick->state == 0 || pick->state == OPTIM_STATE_PLAIN || pick->target == CAT_NONE)
            continue;
        (void)optim_state_parse(&a->from->pool, t->path, a->parts->model_has_ddp, &name);
        text_append(&name.fqn, "", 0);
        value key = VALUE_OF_NONE;
        st = text_check(&name.fqn, err);
        if (st == FSDPCK_OK)
            st = text_check(&name.key, err);
        if (st == FSDPCK_OK)
            st = value_new_str(s->pool, name.key.text, name.key.nbytes, &key, err);
        if (st == FSDPCK_OK)
            st = add_entry(s, name.fqn.text, name.fqn.nbytes, key, value_of_tensor(pick->target),
                           err);
    }
    optim_state_name_release(&name);
    return st;
}

static fsdpck_status add_objects_of(root_state *s, value state, const char *fqn, size_t nbytes,
                                    fsdpck_error *err)
{
    value dict;
    if (!value_as_dict(s->pool, state, &dict))
        return optim_state_refuse(FSDPCK_BADINPUT, "a parameter's state is not a dict", fqn, err);
    for (size_t k = 0; k < value_count(s->pool, dict); k++)
        RETURN_IF(add_entry(s, fqn, nbytes, value_key(s->pool, dict, k),
                            value_item(s->pool, dict, k), err));
    return FSDPCK_OK;
}

static fsdpck_status add_objects(root_state *s, fsdpck_error *err)
{
    text_buf clean = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < value_count(s->pool, s->states); i++) {
        const value owner = value_key(s->pool, s->states, i);
        st = value_kind_of(owner) == VALUE_STR ? clean_name(s, owner, &clean, err)
                                               : optim_state_refuse_numbers(NULL, err);
        if (st == FSDPCK_OK)
            st =
                add_objects_of(s, value_item(s->pool, s->states, i), clean.text, clean.nbytes, err);
    }
    text_release(&clean);
    return st;
}

static int compare_entries(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    ORDER_BY(a->number, b->number);
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

/* Entry `e` of one number's dict. Parameters of a flat parameter must have equal non-tensor
 * entries. */
static fsdpck_status put_entry(root_state *s, value dict, const entry *e, fsdpck_error *err)
{
    for (size_t i = 0; i < value_count(s->pool, dict); i++) {
        bool same = false;
        const value had = value_item(s->pool, dict, i);
        if (value_key(s->pool, dict, i) != e->key)
            continue;
        if (value_kind_of(had) == VALUE_TENSOR && value_kind_of(e->leaf) == VALUE_TENSOR)
            return FSDPCK_OK;
        RETURN_IF(value_equal(s->pool, had, s->pool, e->leaf, &same, err));
        size_t nbytes;
        return same ? FSDPCK_OK
                    : optim_state_refuse(
                          FSDPCK_BADINPUT,
                          "parameters of one flat parameter have different optimizer state",
                          value_text(s->pool, e->key, &nbytes), err);
    }
    return value_dict_put(s->pool, dict, e->key, e->leaf, err);
}

/* An entry that is no tensor must belong to all parameters of a flat parameter: entries [first, end)
 * are those of its number. */
static fsdpck_status check_shared(root_state *s, value dict, size_t first, size_t end,
                                  fsdpck_error *err)
{
    const unit_list *l = s->a->to->units;
    const uint32_t unit_index = VEC_AT(&s->entries, const entry, first)->unit;
    for (size_t i = 0; unit_index != CAT_NONE && i < value_count(s->pool, dict); i++) {
        const value key = value_key(s->pool, dict, i);
        uint32_t count = 0;
        if (value_kind_of(value_item(s->pool, dict, i)) == VALUE_TENSOR)
            continue;
        for (size_t k = first; k < end; k++)
            count += VEC_AT(&s->entries, const entry, k)->key == key;
        if (count >= unit_at(l, unit_index)->nparams)
            continue;
        size_t nbytes;
        const fsdpck_status st = optim_state_refuse(
            FSDPCK_BADINPUT, "only some parameters of one flat parameter have this optimizer state",
            value_text(s->pool, key, &nbytes), err);
        error_expected(err, "%" PRIu32 " parameters with it", unit_at(l, unit_index)->nparams);
        error_found(err, "%" PRIu32 ", in unit '%s'", count,
                    unit_name(l, unit_at(l, unit_index)->prefix, &nbytes));
        return st;
    }
    return FSDPCK_OK;
}

static fsdpck_status put_number(root_state *s, const entry *first, value dict, fsdpck_error *err)
{
    const unit_list *l = s->a->to->units;
    uint32_t rank = 0, end = (uint32_t)s->rank_dicts.count;
    value number;
    RETURN_IF(value_new_int(s->pool, first->number, &number, err));
    if (first->param != CAT_NONE)
        flatten_rank_range(s->a, unit_of_param(l, first->param),
                           VEC_AT(&l->params, const unit_param, first->param), &rank, &end);
    for (; rank < end; rank++)
        RETURN_IF(
            value_dict_put(s->pool, *VEC_AT(&s->rank_dicts, const value, rank), number, dict, err));
    return FSDPCK_OK;
}

static fsdpck_status put_states(root_state *s, fsdpck_error *err)
{
    if (s->entries.count > 1)
        qsort(s->entries.items, s->entries.count, sizeof(entry), compare_entries);
    for (size_t i = 0; i < s->entries.count;) {
        const entry *first = VEC_AT(&s->entries, const entry, i);
        const size_t begin = i;
        value dict;
        RETURN_IF(value_new_dict(s->pool, &dict, err));
        for (; i < s->entries.count && VEC_AT(&s->entries, const entry, i)->number == first->number;
             i++)
            RETURN_IF(put_entry(s, dict, VEC_AT(&s->entries, const entry, i), err));
        RETURN_IF(check_shared(s, dict, begin, i, err));
        RETURN_IF(put_number(s, first, dict, err));
    }
    return FSDPCK_OK;
}

/* --- all of it --- */

static fsdpck_status make_rank_dicts(root_state *s, fsdpck_error *err)
{
    const uint64_t count = s->per_rank ? s->a->to->world_size : 1;
    for (uint64_t i = 0; i < count; i++) {
        value *dict = vec_push(&s->rank_dicts, err);
        if (dict == NULL)
            return FSDPCK_LIMIT;
        RETURN_IF(value_new_dict(s->pool, dict, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status make_root(root_state *s, value state, value *root, fsdpck_error *err)
{
    value word;
    RETURN_IF(value_new_dict(s->pool, root, err));
    RETURN_IF(value_new_str(s->pool, "state", 5, &word, err));
    RETURN_IF(value_dict_put(s->pool, *root, word, state, err));
    RETURN_IF(value_new_str(s->pool, "param_groups", 12, &word, err));
    return value_dict_put(s->pool, *root, word, s->made_groups, err);
}

static fsdpck_status make_roots(root_state *s, fsdpck_error *err)
{
    target *to = s->a->to;
    if (!s->per_rank)
        return make_root(s, *VEC_AT(&s->rank_dicts, const value, 0), &to->root, err);
    for (size_t i = 0; i < s->rank_dicts.count; i++) {
        value *root = vec_push(&to->rank_roots, err);
        if (root == NULL)
            return FSDPCK_LIMIT;
        RETURN_IF(make_root(s, *VEC_AT(&s->rank_dicts, const value, i), root, err));
    }
    to->root = *VEC_AT(&to->rank_roots, const value, 0);
    return FSDPCK_OK;
}

static fsdpck_status make_all(root_state *s, fsdpck_error *err)
{
    nest n;
    fsdpck_status st = nest_init(&n, s->pool, err);
    if (st == FSDPCK_OK)
        st = fill_nest(s->a, &n, err);
    if (st == FSDPCK_OK)
        st = find_optimizer(s, n.root, err);
    nest_release(&n);
    RETURN_IF(st);
    RETURN_IF(value_new_list(s->pool, &s->made_groups, err));
    for (uint32_t i = 0; i < value_count(s->pool, s->groups); i++)
        RETURN_IF(number_group(s, i, err));
    RETURN_IF(add_tensors(s, err));
    RETURN_IF(add_objects(s, err));
    RETURN_IF(make_rank_dicts(s, err));
    RETURN_IF(put_states(s, err));
    return make_roots(s, err);
}

static bool has_optimizer(const select_state *a)
{
    for (size_t k = 0; k < a->picks.count; k++)
        if (VEC_AT(&a->picks, const select_pick, k)->state != 0)
            return true;
    return a->objects.count > 0;
}

fsdpck_status flat_root_build(select_state *a, fsdpck_error *err)
{
    budget *owner = a->from->owner;
    const unit_list *l = a->to->units;
    const size_t nparams = l->params.count * sizeof(uint32_t);
    const size_t nunits = unit_count(l) * sizeof(uint32_t);
    root_state s = {.a = a,
                    .key = VALUE_OF_NONE,
                    .pool = &a->to->cat.pool,
                    .other_numbers = VEC_OF(uint32_t, owner),
                    .entries = VEC_OF(entry, owner),
                    .rank_dicts = VEC_OF(value, owner)};
    if (!has_optimizer(a))
        return FSDPCK_OK;
    strtab_init(&s.others, owner);
    s.numbers = budget_alloc(owner, nparams, err);
    s.group_of = s.numbers == NULL ? NULL : budget_alloc(owner, nunits, err);
    fsdpck_status st = FSDPCK_LIMIT;
    if (s.group_of != NULL) {
        memset(s.numbers, 0xff, nparams);
        memset(s.group_of, 0xff, nunits);
        st = make_all(&s, err);
    }
    if (s.group_of != NULL)
        budget_free(owner, s.group_of, nunits);
    if (s.numbers != NULL)
        budget_free(owner, s.numbers, nparams);
    strtab_release(&s.others);
    VEC_RELEASE_ALL(&s.other_numbers, &s.entries, &s.rank_dicts);
    return st;
}
