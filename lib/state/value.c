#include "state/value.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "state/value_cells.h"

_Static_assert(sizeof(value_node) % sizeof(uint64_t) == 0, "a node fills whole cells");
_Static_assert(sizeof(value_call) % sizeof(uint64_t) == 0, "a call fills whole cells");

void value_pool_init(value_pool *p, budget *owner)
{
    strtab_init(&p->strings, owner);
    p->cells = VEC_OF(uint64_t, owner);
    p->owner = owner;
}

void value_pool_release(value_pool *p)
{
    strtab_release(&p->strings);
    vec_release(&p->cells);
}

value value_of_bool(bool b)
{
    return value_make(VALUE_BOOL, b);
}

value value_of_tensor(uint64_t tensor_index)
{
    return value_make(VALUE_TENSOR, tensor_index & VALUE_PAYLOAD_MASK);
}

value value_of_host(uint64_t note)
{
    return value_make(VALUE_HOST, note & VALUE_PAYLOAD_MASK);
}

/* A separate cell for 64 bits. */
static fsdpck_status new_wide(value_pool *p, value_kind kind, uint64_t bits, value *v,
                              fsdpck_error *err)
{
    uint64_t at;
    RETURN_IF(value_cells_reserve(p, 1, &at, err));
    *value_cell(p, at) = bits;
    *v = value_make(kind, at | VALUE_WIDE);
    return FSDPCK_OK;
}

fsdpck_status value_new_int(value_pool *p, int64_t i, value *v, fsdpck_error *err)
{
    const int64_t bound = INT64_C(1) << (VALUE_PAYLOAD_BITS - 2);
    if (i < -bound || i >= bound)
        return new_wide(p, VALUE_INT, (uint64_t)i, v, err);
    *v = value_make(VALUE_INT, (uint64_t)i & (VALUE_PAYLOAD_MASK >> 1));
    return FSDPCK_OK;
}

/* Doubles with 9 trailing zero bits (0.5, 1.0, most small binary fractions) need no cell. */
fsdpck_status value_new_float(value_pool *p, double d, value *v, fsdpck_error *err)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    if ((bits & 0x1FF) != 0)
        return new_wide(p, VALUE_FLOAT, bits, v, err);
    *v = value_make(VALUE_FLOAT, bits >> 9);
    return FSDPCK_OK;
}

static fsdpck_status new_text(value_pool *p, value_kind kind, const void *bytes, size_t nbytes,
                              value *v, fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&p->strings, bytes, nbytes, &id, err));
    *v = value_make(kind, id);
    return FSDPCK_OK;
}

/* Omits the bytes that only repeat the sign, so that equal numbers have equal bytes. */
static size_t significant_nbytes(const uint8_t *le, size_t nbytes)
{
    while (nbytes > 1) {
        const uint8_t sign = le[nbytes - 2] & 0x80 ? 0xFF : 0;
        if (le[nbytes - 1] != sign)
            break;
        nbytes--;
    }
    return nbytes;
}

fsdpck_status value_new_bigint(value_pool *p, const uint8_t *le, size_t nbytes, value *v,
                               fsdpck_error *err)
{
    const size_t n = significant_nbytes(le, nbytes);
    if (n > 8)
        return new_text(p, VALUE_BIGINT, le, n, v, err);
    uint8_t wide[8];
    memset(wide, n > 0 && (le[n - 1] & 0x80) ? 0xFF : 0, sizeof(wide));
    if (n > 0)
        memcpy(wide, le, n);
    return value_new_int(p, (int64_t)load_le64(wide), v, err);
}

fsdpck_status value_new_str(value_pool *p, const char *text, size_t nbytes, value *v,
                            fsdpck_error *err)
{
    return new_text(p, VALUE_STR, text, nbytes, v, err);
}

fsdpck_status value_new_bytes(value_pool *p, const void *bytes, size_t nbytes, value *v,
                              fsdpck_error *err)
{
    return new_text(p, VALUE_BYTES, bytes, nbytes, v, err);
}

fsdpck_status value_new_symbol_of(value_pool *p, const char *module, size_t module_nbytes,
                                  const char *name, size_t name_nbytes, value *v, fsdpck_error *err)
{
    char joined[512];
    const size_t room = sizeof(joined) - 5;
    if (module_nbytes > room || name_nbytes > room - module_nbytes)
        return FAIL_WITH(err, LIMIT, PKL_LIMIT, ("the name of a symbol is too long"),
                         (expected, "module and name of at most %zu bytes together", room),
                         (found, "%zu and %zu bytes", module_nbytes, name_nbytes));
    store_le32((uint8_t *)joined, (uint32_t)module_nbytes);
    memcpy(joined + 4, module, module_nbytes);
    joined[4 + module_nbytes] = '\0';
    memcpy(joined + 5 + module_nbytes, name, name_nbytes);
    return new_text(p, VALUE_SYMBOL, joined, 5 + module_nbytes + name_nbytes, v, err);
}

static fsdpck_status new_node(value_pool *p, value_kind kind, value *v, fsdpck_error *err)
{
    uint64_t at;
    RETURN_IF(value_cells_reserve(p, VALUE_NODE_CELLS, &at, err));
    *v = value_make(kind, at);
    *value_node_of(p, *v) = (value_node){0};
    return FSDPCK_OK;
}

fsdpck_status value_new_list(value_pool *p, value *v, fsdpck_error *err)
{
    return new_node(p, VALUE_LIST, v, err);
}

fsdpck_status value_new_set(value_pool *p, value *v, fsdpck_error *err)
{
    return new_node(p, VALUE_SET, v, err);
}

fsdpck_status value_new_dict(value_pool *p, value *v, fsdpck_error *err)
{
    return new_node(p, VALUE_DICT, v, err);
}

static size_t cells_per_item(value v)
{
    return value_kind_inline(v) == VALUE_DICT ? 2 : 1;
}

fsdpck_status value_node_reserve(value_pool *p, value v, size_t extra, fsdpck_error *err)
{
    const value_node *node = value_node_of(p, v);
    if (extra <= node->capacity - node->count)
        return FSDPCK_OK;
    if (extra > UINT32_MAX / 2 - node->count)
        return FAIL(err, LIMIT, PKL_LIMIT, "a list or dict has too many items");
    const size_t width = cells_per_item(v);
    const size_t want = node->count + extra;
    uint64_t at;
    if (node->capacity > 0 && node->items_at + node->capacity * width == p->cells.count) {
        RETURN_IF(value_cells_reserve(p, (want - node->capacity) * width, &at, err));
        value_node_of(p, v)->capacity = (uint32_t)want;
        return FSDPCK_OK;
    }
    const size_t capacity = want > 2 * (size_t)node->capacity ? want : 2 * (size_t)node->capacity;
    RETURN_IF(value_cells_reserve(p, capacity * width, &at, err));
    value_node *moved = value_node_of(p, v);
    if (moved->count > 0)
        memcpy(value_cell(p, at), value_cell(p, moved->items_at),
               moved->count * width * sizeof(uint64_t));
    moved->items_at = at;
    moved->capacity = (uint32_t)capacity;
    return FSDPCK_OK;
}

fsdpck_status value_new_from(value_pool *p, value_kind kind, const value *items, size_t count,
                             value *v, fsdpck_error *err)
{
    if (kind == VALUE_LIST || kind == VALUE_SET) {
        value made;
        RETURN_IF(new_node(p, kind, &made, err));
        RETURN_IF(value_node_reserve(p, made, count, err));
        value_node *node = value_node_of(p, made);
        if (count > 0)
            memcpy(value_cell(p, node->items_at), items, count * sizeof(value));
        node->count = (uint32_t)count;
        *v = made;
        return FSDPCK_OK;
    }
    if (kind != VALUE_TUPLE && kind != VALUE_FROZENSET)
        return FAIL(err, INTERNAL, NONE, "a value of kind %d was made from items", kind);
    uint64_t at = VALUE_NO_CELLS;
    if (count > 0) {
        if (count > UINT32_MAX)
            return FAIL(err, LIMIT, PKL_LIMIT, "a tuple has too many items");
        RETURN_IF(value_cells_reserve(p, count + 1, &at, err));
        *value_cell(p, at) = count;
        memcpy(value_cell(p, at + 1), items, count * sizeof(value));
    }
    *v = value_make(kind, at);
    return FSDPCK_OK;
}

fsdpck_status value_new_call(value_pool *p, const value_call *call, value *v, fsdpck_error *err)
{
    uint64_t at;
    const value_call copy = *call; /* it may be in the pool, which moves now */
    RETURN_IF(value_cells_reserve(p, VALUE_CALL_CELLS, &at, err));
    *v = value_make(VALUE_CALL, at);
    *(value_call *)(void *)value_cell(p, at) = copy;
    return FSDPCK_OK;
}

fsdpck_status value_append(value_pool *p, value v, value item, fsdpck_error *err)
{
    const value_kind kind = value_kind_inline(v);
    if (kind != VALUE_LIST && kind != VALUE_SET)
        return FAIL(err, INTERNAL, NONE, "an item was appended to a value of kind %d", kind);
    RETURN_IF(value_node_reserve(p, v, 1, err));
    value_node *node = value_node_of(p, v);
    *value_cell(p, node->items_at + node->count) = item;
    node->count++;
    return FSDPCK_OK;
}

fsdpck_status value_dict_put(value_pool *p, value dict, value key, value item, fsdpck_error *err)
{
    if (value_kind_inline(dict) != VALUE_DICT)
        return FAIL(err, INTERNAL, NONE, "a pair was put into a value of kind %d",
                    value_kind_inline(dict));
    RETURN_IF(value_node_reserve(p, dict, 1, err));
    value_node *node = value_node_of(p, dict);
    uint64_t *pair = value_cell(p, node->items_at + 2 * (uint64_t)node->count);
    pair[0] = key;
    pair[1] = item;
    node->count++;
    return FSDPCK_OK;
}
