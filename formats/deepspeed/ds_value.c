/* ds_value.c: values of DeepSpeed's pickles. */
#include <string.h>

#include "formats/deepspeed/ds_internal.h"

bool ds_is_dict(value_pool *pool, value v, value *dict)
{
    return (value_kind_of(v) == VALUE_DICT || value_kind_of(v) == VALUE_CALL) &&
           value_as_dict(pool, v, dict);
}

value ds_item(ds_open *o, value v, const char *key)
{
    value dict, item;
    if (ds_is_dict(&o->scratch.pool, v, &dict) &&
        value_dict_find(&o->scratch.pool, dict, key, &item))
        return item;
    return VALUE_OF_NONE;
}

bool ds_is_sequence(value v)
{
    return value_kind_of(v) == VALUE_TUPLE || value_kind_of(v) == VALUE_LIST;
}

bool ds_number(const value_pool *pool, value v, uint64_t *number)
{
    const value_call *call = value_call_of(pool, v);
    if (call != NULL && torch_call_is_enum(pool, call))
        v = value_item(pool, call->args, 0);
    return value_kind_of(v) == VALUE_INT && value_as_u64(pool, v, number);
}

bool ds_attribute_number(const value_pool *pool, value v, const char *name, uint64_t *number)
{
    const value_call *call = value_call_of(pool, v);
    value item;
    return call != NULL && call->has_state && value_kind_of(call->state) == VALUE_DICT &&
           value_dict_find(pool, call->state, name, &item) && value_as_u64(pool, item, number);
}

bool ds_shape(const value_pool *pool, value v, uint64_t *dims, unsigned *ndim)
{
    const value_call *call = value_call_of(pool, v);
    if (call != NULL && value_is_symbol_named(pool, call->callee, "Size"))
        v = value_item(pool, call->args, 0);
    if (!ds_is_sequence(v) || value_count(pool, v) > NDIM_MAX)
        return false;
    *ndim = (unsigned)value_count(pool, v);
    for (unsigned i = 0; i < *ndim; i++)
        if (!value_as_u64(pool, value_item(pool, v, i), &dims[i]))
            return false;
    return true;
}

fsdpck_status ds_intern(ds_open *o, value name, uint32_t *id, fsdpck_error *err)
{
    size_t nbytes;
    ds_state *s = o->s;
    if (value_kind_of(name) != VALUE_STR)
        return ds_fail_form("name of a parameter is not a text", err);
    const char *text = value_text(&o->scratch.pool, name, &nbytes);
    RETURN_IF(strtab_intern(&s->names, text, nbytes, id, err));
    while (s->by_name.count < strtab_count(&s->names))
        RETURN_IF(vec_add(
            &s->by_name,
            &(ds_name){
                .param = CAT_NONE, .frozen = CAT_NONE, .shared = CAT_NONE, .piece = CAT_NONE},
            err));
    return FSDPCK_OK;
}

fsdpck_status ds_fail_form(const char *what, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, ZERO_FORM, ("%s", what),
                     (next, "copy the file again, or save with a released DeepSpeed"));
}

void ds_leave_out(ds_state *s, const char *name, size_t nbytes)
{
    char text[200];
    if (++s->left_out <= 3)
        text_printf(&s->left_out_names, "%s'%s'", s->left_out > 1 ? ", " : "",
                    escape_text(text, sizeof text, name, nbytes));
}
