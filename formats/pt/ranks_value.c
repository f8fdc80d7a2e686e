/* ranks_value.c: looking into pickles. */
#include <string.h>

#include "formats/pt/ranks_internal.h"

bool ranks_is_class(const value_pool *pool, value v, const char *name)
{
    const value_call *call = value_call_of(pool, v);
    return call != NULL && value_is_symbol_named(pool, call->callee, name) &&
           strncmp(value_symbol_module(pool, call->callee), "torch.", 6) == 0;
}

bool ranks_state_find(const value_pool *pool, value state, const char *name, value *item)
{
    if (value_kind_of(state) == VALUE_DICT)
        return value_dict_find(pool, state, name, item);
    if (value_kind_of(state) != VALUE_TUPLE)
        return false;
    for (size_t i = value_count(pool, state); i-- > 0;) {
        const value part = value_item(pool, state, i);
        if (i < 2 && value_kind_of(part) == VALUE_DICT && value_dict_find(pool, part, name, item))
            return true;
    }
    return false;
}

bool ranks_attribute(const value_pool *pool, value v, const char *name, value *item)
{
    const value_call *call = value_call_of(pool, v);
    return call != NULL && call->has_state && ranks_state_find(pool, call->state, name, item);
}

value ranks_unwrap_size(const value_pool *pool, value v)
{
    const value_call *call = value_call_of(pool, v);
    if (call != NULL && value_is_symbol_named(pool, call->callee, "Size"))
        return value_item(pool, call->args, 0);
    return v;
}

bool ranks_is_sequence(value v)
{
    return value_kind_of(v) == VALUE_TUPLE || value_kind_of(v) == VALUE_LIST;
}

bool ranks_dims(const value_pool *pool, value v, uint64_t *dims, unsigned max, unsigned *count)
{
    v = ranks_unwrap_size(pool, v);
    if (!ranks_is_sequence(v) || value_count(pool, v) > max)
        return false;
    *count = (unsigned)value_count(pool, v);
    for (unsigned i = 0; i < *count; i++)
        if (!value_as_u64(pool, value_item(pool, v, i), &dims[i]))
            return false;
    return true;
}
