#include <string.h>

#include "base/utf8.h"
#include "formats/common/pickle.h"

static bool is_builtin(const value_pool *p, value v, const char *name)
{
    return value_is_symbol(p, v, "__builtin__", name) || value_is_symbol(p, v, "builtins", name);
}

/* The bytes whose values are the text's code points; *fits is false if one is over 255. */
static fsdpck_status bytes_of_latin1(value_pool *pool, value text, value *bytes, bool *fits,
                                     fsdpck_error *err)
{
    size_t nbytes = 0;
    const uint8_t *s = (const uint8_t *)value_text(pool, text, &nbytes);
    uint8_t *latin1 = budget_alloc(pool->owner, nbytes, err);
    if (latin1 == NULL)
        return FSDPCK_LIMIT;
    size_t n = 0;
    *fits = true;
    for (size_t i = 0; i < nbytes && *fits;) {
        uint32_t c = 0;
        const unsigned length = utf8_decode(s + i, nbytes - i, &c);
        *fits = length > 0 && c <= 0xFF;
        latin1[n++] = (uint8_t)c;
        i += length;
    }
    const fsdpck_status st = *fits ? value_new_bytes(pool, latin1, n, bytes, err) : FSDPCK_OK;
    budget_free(pool->owner, latin1, nbytes);
    return st;
}

/* A set of a list's items. */
static fsdpck_status set_of_list(value_pool *pool, value_kind kind, value list, value *made,
                                 fsdpck_error *err)
{
    value set;
    RETURN_IF(value_new_set(pool, &set, err));
    const size_t count = value_count(pool, list);
    if (kind == VALUE_SET) {
        for (size_t i = 0; i < count; i++)
            RETURN_IF(value_append(pool, set, value_item(pool, list, i), err));
        *made = set;
        return FSDPCK_OK;
    }
    vec items = VEC_OF(value, pool->owner);
    value *copy = vec_push_n(&items, count, err);
    if (copy == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++)
        copy[i] = value_item(pool, list, i);
    const fsdpck_status st = value_new_from(pool, kind, copy, count, made, err);
    vec_release(&items);
    return st;
}

fsdpck_status pickle_plain_call(value_pool *pool, const value_call *call, value *replacement,
                                bool *replaced, fsdpck_error *err)
{
    if (call->how != CALL_REDUCE || value_kind_of(call->callee) != VALUE_SYMBOL || call->has_state)
        return FSDPCK_OK;
    const size_t nargs = value_count(pool, call->args);
    const value first = value_item(pool, call->args, 0);
    if (nargs == 2 && value_kind_of(first) == VALUE_STR &&
        value_is_symbol(pool, call->callee, "_codecs", "encode")) {
        const value coding = value_item(pool, call->args, 1);
        if (value_is_str(pool, coding, "latin1") || value_is_str(pool, coding, "latin-1"))
            return bytes_of_latin1(pool, first, replacement, replaced, err);
        return FSDPCK_OK;
    }
    if (nargs == 0 && is_builtin(pool, call->callee, "bytes")) {
        *replaced = true;
        return value_new_bytes(pool, "", 0, replacement, err);
    }
    if (nargs != 1 || value_kind_of(first) != VALUE_LIST)
        return FSDPCK_OK;
    const bool is_set = is_builtin(pool, call->callee, "set");
    if (!is_set && !is_builtin(pool, call->callee, "frozenset"))
        return FSDPCK_OK;
    *replaced = true;
    return set_of_list(pool, is_set ? VALUE_SET : VALUE_FROZENSET, first, replacement, err);
}

fsdpck_status pickle_getattr_symbol(value_pool *pool, const value_call *call, value *symbol,
                                    bool *is_one, fsdpck_error *err)
{
    *is_one = false;
    const value owner = value_item(pool, call->args, 0);
    const value attribute = value_item(pool, call->args, 1);
    if (call->how != CALL_REDUCE || !is_builtin(pool, call->callee, "getattr") ||
        value_count(pool, call->args) != 2 || value_kind_of(owner) != VALUE_SYMBOL ||
        value_kind_of(attribute) != VALUE_STR)
        return FSDPCK_OK;
    size_t nbytes = 0;
    const char *name = value_text(pool, attribute, &nbytes);
    if (nbytes == 0 || memchr(name, '\0', nbytes) != NULL)
        return FSDPCK_OK;
    const char *module = value_symbol_module(pool, owner);
    text_buf joined = {.limit_bytes = 1u << 16};
    text_puts(&joined, value_symbol_name(pool, owner));
    text_puts(&joined, ".");
    text_append(&joined, name, nbytes);
    fsdpck_status st = text_check(&joined, err);
    if (st == FSDPCK_OK)
        st = value_new_symbol_of(pool, module, strlen(module), joined.text, joined.nbytes, symbol,
                                 err);
    text_release(&joined);
    *is_one = st == FSDPCK_OK;
    return st;
}
