/* flat_root_numbers.c: the numbers of an optimizer's parameters.
 *
 * Numbers are given through the param_groups in their order. Without use_orig_params they count
 * flat parameters, else the original parameters. flat_order.h: their order within a group. In the
 * order of the model, flat parameters follow the units, as model.parameters() gives them: a flat
 * parameter is its module's own and so comes before those of modules below. */
#include "model/fqn.h"
#include "select/flat_order.h"
#include "select/flat_root_internal.h"

fsdpck_status flat_root_find_slot(flat_root *s, const char *name, size_t nbytes, uint32_t *param,
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
        RETURN_IF(vec_add(&s->other_numbers, &(uint32_t){FLAT_ROOT_NO_NUMBER}, err));
    }
    *slot = VEC_AT(&s->other_numbers, uint32_t, id);
    return FSDPCK_OK;
}

static fsdpck_status assign_number(flat_root *s, uint32_t *slot, value list, fsdpck_error *err)
{
    value number;
    if (*slot != FLAT_ROOT_NO_NUMBER)
        return FSDPCK_OK;
    *slot = s->next++;
    RETURN_IF(value_new_int(s->pool, *slot, &number, err));
    return value_append(s->pool, list, number, err);
}

/* The flat parameter of a parameter; a parameter of no unit is refused. */
static fsdpck_status find_unit(flat_root *s, uint32_t group, uint32_t param, const char *name,
                               uint32_t *unit_index, fsdpck_error *err)
{
    const unit_list *l = s->a->to->units;
    if (param == CAT_NONE)
        return optim_state_refuse(
            FSDPCK_UNSUPPORTED, "cannot number a parameter outside all units among flat parameters",
            name, err);
    *unit_index = (uint32_t)(unit_of_param(l, param) - unit_at(l, 0));
    uint32_t *of = &s->group_of[*unit_index];
    if (*of != FLAT_ROOT_NO_NUMBER && *of != group)
        return optim_state_refuse(
            FSDPCK_BADINPUT, "parameters of one flat parameter are in two param_groups", name, err);
    *of = group;
    return FSDPCK_OK;
}

fsdpck_status flat_root_clean_name(const flat_root *s, value name, text_buf *out, fsdpck_error *err)
{
    size_t nbytes;
    const char *text = value_text(s->pool, name, &nbytes);
    out->nbytes = 0;
    fqn_clean(text, nbytes, s->a->parts->model_has_ddp, out);
    text_append(out, "", 0);
    return text_check(out, err);
}

/* name: clean. */
static fsdpck_status list_clean_name(flat_root *s, flat_order *o, const char *text, size_t nbytes,
                                     fsdpck_error *err)
{
    const unit_list *l = s->a->to->units;
    uint32_t param, *slot, unit_index = 0;
    RETURN_IF(flat_root_find_slot(s, text, nbytes, &param, &slot, err));
    if (param != CAT_NONE && !unit_of_param(l, param)->use_orig_params != o->flat)
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

static fsdpck_status list_name(flat_root *s, flat_order *o, value name, fsdpck_error *err)
{
    text_buf clean = {0};
    if (value_kind_of(name) != VALUE_STR)
        return optim_state_refuse_numbers(NULL, err);
    fsdpck_status st = flat_root_clean_name(s, name, &clean, err);
    if (st == FSDPCK_OK)
        st = list_clean_name(s, o, clean.text, clean.nbytes, err);
    text_release(&clean);
    return st;
}

/* Numbers of the items in their order. */
static fsdpck_status assign_numbers(flat_root *s, const flat_order *o, value list,
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

static fsdpck_status number_params(flat_root *s, flat_order *o, value from, value params,
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

fsdpck_status flat_root_number_group(flat_root *s, uint32_t group, fsdpck_error *err)
{
    value from = VALUE_OF_NONE, params = VALUE_OF_NONE, made, list, word;
    const unit_list *l = s->a->to->units;
    const bool flat = unit_count(l) > 0 && !unit_at(l, 0)->use_orig_params;

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
