/* The optimizer's state as in rank files of FSDP1: torch's optimizer.state_dict(), by number. A rank has
 * state only for parameters with a shard on it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "select/flat_root_internal.h"
#include "select/nest.h"

/* One entry for one number. */
typedef struct entry {
    uint32_t number;
    uint32_t seq;   /* in the order of the source */
    uint32_t param; /* its shards determine the ranks; CAT_NONE: all ranks */
    uint32_t unit;  /* without use_orig_params, else CAT_NONE */
    value key, leaf;
} entry;

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
static fsdpck_status find_optimizer(flat_root *s, value root, fsdpck_error *err)
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

/* --- states --- */

static fsdpck_status add_entry(flat_root *s, const char *fqn, size_t nbytes, value key, value leaf,
                               fsdpck_error *err)
{
    const unit_list *l = s->a->to->units;
    uint32_t param, *slot;
    RETURN_IF(flat_root_find_slot(s, fqn, nbytes, &param, &slot, err));
    if (*slot == FLAT_ROOT_NO_NUMBER)
        return optim_state_refuse(
            FSDPCK_BADINPUT, "optimizer state belongs to a parameter that is in no param_group",
            fqn, err);
    const unit *u = param == CAT_NONE ? NULL : unit_of_param(l, param);
    entry *e = vec_push(&s->entries, err);
    if (e == NULL)
        return FSDPCK_LIMIT;
    *e =
        (entry){.number = *slot,
                .seq = (uint32_t)s->entries.count,
                .param = u != NULL && u->use_orig_params && unit_is_sharded(u) ? param : CAT_NONE,
                .unit = u != NULL && !u->use_orig_params ? (uint32_t)(u - unit_at(l, 0)) : CAT_NONE,
                .key = key,
                .leaf = leaf};
    s->per_rank = s->per_rank || e->param != CAT_NONE;
    return FSDPCK_OK;
}

static fsdpck_status add_tensors(flat_root *s, fsdpck_error *err)
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

static fsdpck_status add_objects_of(flat_root *s, value state, const char *fqn, size_t nbytes,
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

static fsdpck_status add_objects(flat_root *s, fsdpck_error *err)
{
    text_buf clean = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < value_count(s->pool, s->states); i++) {
        const value owner = value_key(s->pool, s->states, i);
        st = value_kind_of(owner) == VALUE_STR ? flat_root_clean_name(s, owner, &clean, err)
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
static fsdpck_status put_entry(flat_root *s, value dict, const entry *e, fsdpck_error *err)
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
static fsdpck_status check_shared(flat_root *s, value dict, size_t first, size_t end,
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

static fsdpck_status put_number(flat_root *s, const entry *first, value dict, fsdpck_error *err)
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

static fsdpck_status put_states(flat_root *s, fsdpck_error *err)
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

static fsdpck_status make_rank_dicts(flat_root *s, fsdpck_error *err)
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

static fsdpck_status make_root(flat_root *s, value state, value *root, fsdpck_error *err)
{
    value word;
    RETURN_IF(value_new_dict(s->pool, root, err));
    RETURN_IF(value_new_str(s->pool, "state", 5, &word, err));
    RETURN_IF(value_dict_put(s->pool, *root, word, state, err));
    RETURN_IF(value_new_str(s->pool, "param_groups", 12, &word, err));
    return value_dict_put(s->pool, *root, word, s->made_groups, err);
}

static fsdpck_status make_roots(flat_root *s, fsdpck_error *err)
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

static fsdpck_status make_all(flat_root *s, fsdpck_error *err)
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
        RETURN_IF(flat_root_number_group(s, i, err));
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
    flat_root s = {.a = a,
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
