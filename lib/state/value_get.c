#include <string.h>

#include "base/bytes.h"
#include "base/text.h"
#include "state/value.h"
#include "state/value_cells.h"

value_kind value_kind_of(value v)
{
    return value_kind_inline(v);
}

bool value_is_none(value v)
{
    return v == VALUE_OF_NONE;
}

bool value_is_true(value v)
{
    return v == value_make(VALUE_BOOL, 1);
}

bool value_as_i64(const value_pool *p, value v, int64_t *i)
{
    if (value_kind_inline(v) == VALUE_BOOL) {
        *i = (int64_t)value_payload(v);
        return true;
    }
    if (value_kind_inline(v) != VALUE_INT)
        return false;
    if (v & VALUE_WIDE)
        *i = (int64_t)*value_cell(p, value_first_cell(v));
    else
        *i = (int64_t)(v << 9) >> 9;
    return true;
}

bool value_as_u64(const value_pool *p, value v, uint64_t *u)
{
    int64_t i;
    if (value_kind_inline(v) != VALUE_INT || !value_as_i64(p, v, &i) || i < 0)
        return false;
    *u = (uint64_t)i;
    return true;
}

bool value_as_double(const value_pool *p, value v, double *d)
{
    int64_t i;
    if (value_kind_inline(v) != VALUE_FLOAT) {
        if (!value_as_i64(p, v, &i))
            return false;
        *d = (double)i;
        return true;
    }
    const uint64_t bits = v & VALUE_WIDE ? *value_cell(p, value_first_cell(v)) : v << 9;
    memcpy(d, &bits, sizeof(*d));
    return true;
}

uint64_t value_tensor_index(value v)
{
    return value_payload(v);
}

uint64_t value_host_note(value v)
{
    return value_payload(v);
}

const char *value_text(const value_pool *p, value v, size_t *nbytes)
{
    switch (value_kind_inline(v)) {
    case VALUE_STR:
    case VALUE_BYTES:
    case VALUE_BIGINT:
        *nbytes = strtab_nbytes(&p->strings, (uint32_t)value_payload(v));
        return strtab_text(&p->strings, (uint32_t)value_payload(v));
    default:
        *nbytes = 0;
        return NULL;
    }
}

bool value_is_str(const value_pool *p, value v, const char *text)
{
    if (value_kind_inline(v) != VALUE_STR)
        return false;
    size_t nbytes = 0;
    const char *own = value_text(p, v, &nbytes);
    return nbytes == strlen(text) && memcmp(own, text, nbytes) == 0;
}

const char *value_symbol_module(const value_pool *p, value v)
{
    if (value_kind_inline(v) != VALUE_SYMBOL)
        return "";
    return strtab_text(&p->strings, (uint32_t)value_payload(v)) + 4;
}

/* Name of a SYMBOL with its length. */
static const char *symbol_name(const value_pool *p, value v, size_t *nbytes, size_t *module_nbytes)
{
    const uint32_t id = (uint32_t)value_payload(v);
    const char *joined = strtab_text(&p->strings, id);
    *module_nbytes = load_le32((const uint8_t *)joined);
    *nbytes = strtab_nbytes(&p->strings, id) - 5 - *module_nbytes;
    return joined + 5 + *module_nbytes;
}

const char *value_symbol_name(const value_pool *p, value v)
{
    size_t nbytes = 0;
    size_t module_nbytes = 0;
    return value_kind_inline(v) == VALUE_SYMBOL ? symbol_name(p, v, &nbytes, &module_nbytes) : "";
}

bool value_is_symbol_named(const value_pool *p, value v, const char *name)
{
    if (value_kind_inline(v) != VALUE_SYMBOL)
        return false;
    size_t nbytes = 0;
    size_t module_nbytes = 0;
    const char *own = symbol_name(p, v, &nbytes, &module_nbytes);
    return nbytes == strlen(name) && memcmp(own, name, nbytes) == 0;
}

bool value_is_symbol(const value_pool *p, value v, const char *module, const char *name)
{
    if (!value_is_symbol_named(p, v, name))
        return false;
    size_t nbytes = 0;
    size_t module_nbytes = 0;
    (void)symbol_name(p, v, &nbytes, &module_nbytes);
    return text_is(value_symbol_module(p, v), module_nbytes, module);
}

const value *value_items(const value_pool *p, value v, size_t *count)
{
    *count = 0;
    switch (value_kind_inline(v)) {
    case VALUE_TUPLE:
    case VALUE_FROZENSET:
        if (value_payload(v) == VALUE_NO_CELLS)
            return NULL;
        *count = (size_t)*value_cell(p, value_payload(v));
        return value_cell(p, value_payload(v) + 1);
    case VALUE_LIST:
    case VALUE_SET:
    case VALUE_DICT: {
        const value_node *node = value_node_of(p, v);
        if (node->count == 0)
            return NULL;
        *count = (size_t)node->count * (value_kind_inline(v) == VALUE_DICT ? 2 : 1);
        return value_cell(p, node->items_at);
    }
    default:
        return NULL;
    }
}

size_t value_count(const value_pool *p, value v)
{
    size_t count;
    (void)value_items(p, v, &count);
    return value_kind_inline(v) == VALUE_DICT ? count / 2 : count;
}

value value_item(const value_pool *p, value v, size_t i)
{
    size_t count;
    const value *cells = value_items(p, v, &count);
    const size_t at = value_kind_inline(v) == VALUE_DICT ? 2 * i + 1 : i;
    return at < count ? cells[at] : VALUE_OF_NONE;
}

value value_key(const value_pool *p, value v, size_t i)
{
    size_t count;
    const value *cells = value_items(p, v, &count);
    return value_kind_inline(v) == VALUE_DICT && 2 * i < count ? cells[2 * i] : VALUE_OF_NONE;
}

void value_set_item(value_pool *p, value v, size_t i, value item)
{
    const value_kind kind = value_kind_inline(v);
    if ((kind != VALUE_LIST && kind != VALUE_DICT && kind != VALUE_TUPLE) || i >= value_count(p, v))
        return;
    if (kind == VALUE_TUPLE) {
        *value_cell(p, value_payload(v) + 1 + i) = item;
        return;
    }
    const uint64_t at = kind == VALUE_DICT ? 2 * (uint64_t)i + 1 : i;
    *value_cell(p, value_node_of(p, v)->items_at + at) = item;
}

void value_set_key(value_pool *p, value dict, size_t i, value key)
{
    if (value_kind_inline(dict) == VALUE_DICT && i < value_count(p, dict))
        *value_cell(p, value_node_of(p, dict)->items_at + 2 * (uint64_t)i) = key;
}

value_call *value_call_of(const value_pool *p, value v)
{
    if (value_kind_inline(v) != VALUE_CALL)
        return NULL;
    return (value_call *)(void *)value_cell(p, value_payload(v));
}

bool value_keys_equal(const value_pool *p, value a, value b)
{
    if (a == b)
        return true;
    int64_t i = 0;
    int64_t k = 0;
    const bool a_int = value_as_i64(p, a, &i);
    const bool b_int = value_as_i64(p, b, &k);
    if (a_int && b_int)
        return i == k;
    double x;
    double y;
    if (!value_as_double(p, a, &x) || !value_as_double(p, b, &y))
        return false;
    /* Exactly, as in Python: 2^53 + 1 is not a double. */
    const double most = 9223372036854775808.0;
    if (a_int)
        return y >= -most && y < most && (double)(int64_t)y == y && (int64_t)y == i;
    if (b_int)
        return x >= -most && x < most && (double)(int64_t)x == x && (int64_t)x == k;
    return x == y;
}

bool value_dict_find(const value_pool *p, value dict, const char *key, value *item)
{
    const uint32_t id = strtab_find(&p->strings, key, strlen(key));
    if (id == STRTAB_NONE || value_kind_inline(dict) != VALUE_DICT)
        return false;
    const value wanted = value_make(VALUE_STR, id);
    size_t count;
    const value *cells = value_items(p, dict, &count);
    for (; count > 0; count -= 2) {
        if (cells[count - 2] == wanted) {
            *item = cells[count - 1];
            return true;
        }
    }
    return false;
}

bool value_is_dict_class(const value_pool *p, value callee)
{
    static const char *const names[] = {"OrderedDict", "defaultdict", "Counter", "dict"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (value_is_symbol_named(p, callee, names[i]))
            return true;
    }
    return false;
}

/* The pairs of [[key, item], ...] as a dict; false if v is not such a list. */
static bool dict_of_pairs(value_pool *p, value v, value *dict)
{
    const size_t count = value_count(p, v);
    if (value_new_dict(p, dict, NULL) != FSDPCK_OK)
        return false;
    for (size_t i = 0; i < count; i++) {
        const value pair = value_item(p, v, i);
        const value_kind kind = value_kind_inline(pair);
        if ((kind != VALUE_LIST && kind != VALUE_TUPLE) || value_count(p, pair) != 2 ||
            value_dict_put(p, *dict, value_item(p, pair, 0), value_item(p, pair, 1), NULL) !=
                FSDPCK_OK)
            return false;
    }
    return true;
}

bool value_as_dict(value_pool *p, value v, value *dict)
{
    if (value_kind_inline(v) == VALUE_DICT) {
        *dict = v;
        return true;
    }
    const value_call *call = value_call_of(p, v);
    if (call == NULL || !value_is_dict_class(p, call->callee))
        return false;
    if (value_kind_inline(call->dict_items) == VALUE_DICT) {
        *dict = call->dict_items;
        return true;
    }
    const value first = value_item(p, call->args, 0);
    if (value_kind_inline(first) == VALUE_DICT) {
        *dict = first;
        return true;
    }
    if (value_kind_inline(first) == VALUE_LIST)
        return dict_of_pairs(p, first, dict);
    return value_new_dict(p, dict, NULL) == FSDPCK_OK;
}
