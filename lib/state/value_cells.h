/* value_cells.h: how values lie in their pool; for value*.c, the pickle machine and the hooks
 * of readers whose pickles are huge.
 *
 * A handle is a kind (8 bits) over a payload (56 bits):
 *
 *     BOOL, TENSOR, HOST       the payload itself
 *     INT, FLOAT               55 bits where they suffice, else VALUE_WIDE and a cell with all 64
 *     STR, BYTES, BIGINT       string id
 *     SYMBOL                   string id of: length of module (u32 le), module, NUL, name
 *     TUPLE, FROZENSET         first cell: count, then the items; VALUE_NO_CELLS where empty
 *     LIST, SET, DICT          first cell of a value_node, which names the cells of its items
 *     CALL                     first cell of a value_call
 *
 * Cells only grow at their end, and nothing but the pickle machine ever shortens them
 * (value_cells_rewind): everything made after a mark is then gone.
 */
#ifndef FSDPCK_STATE_VALUE_CELLS_H
#define FSDPCK_STATE_VALUE_CELLS_H

#include "state/value.h"

#define VALUE_PAYLOAD_BITS 56
#define VALUE_PAYLOAD_MASK ((UINT64_C(1) << VALUE_PAYLOAD_BITS) - 1)
#define VALUE_WIDE         (UINT64_C(1) << (VALUE_PAYLOAD_BITS - 1))
#define VALUE_NO_CELLS     VALUE_PAYLOAD_MASK

typedef struct value_node {
    uint64_t items_at; /* cell of the first item; a dict has key and item in turn */
    uint64_t note;     /* LIST: value_list_note; DICT: private to the pickle machine */
    uint32_t count;    /* items, or pairs */
    uint32_t capacity;
} value_node;

enum {
    VALUE_NODE_CELLS = sizeof(value_node) / sizeof(uint64_t),
    VALUE_CALL_CELLS = sizeof(value_call) / sizeof(uint64_t)
};

static inline value value_make(value_kind kind, uint64_t payload)
{
    return ((value)kind << VALUE_PAYLOAD_BITS) | payload;
}

static inline uint64_t value_payload(value v)
{
    return v & VALUE_PAYLOAD_MASK;
}

static inline value_kind value_kind_inline(value v)
{
    return (value_kind)(v >> VALUE_PAYLOAD_BITS);
}

/* Whether the value owns cells: a rewind below its payload then removes it. */
static inline bool value_has_cells(value v)
{
    switch (value_kind_inline(v)) {
    case VALUE_INT:
    case VALUE_FLOAT:
        return (v & VALUE_WIDE) != 0;
    case VALUE_TUPLE:
    case VALUE_FROZENSET:
        return value_payload(v) != VALUE_NO_CELLS;
    case VALUE_LIST:
    case VALUE_DICT:
    case VALUE_SET:
    case VALUE_CALL:
        return true;
    default:
        return false;
    }
}

/* First cell of a value that has cells, less VALUE_WIDE. */
static inline uint64_t value_first_cell(value v)
{
    const value_kind kind = value_kind_inline(v);
    const uint64_t at = value_payload(v);
    return kind == VALUE_INT || kind == VALUE_FLOAT ? at & ~VALUE_WIDE : at;
}

static inline uint64_t *value_cell(const value_pool *p, uint64_t at)
{
    return (uint64_t *)p->cells.items + at;
}

/* LIST, SET, DICT. */
static inline value_node *value_node_of(const value_pool *p, value v)
{
    return (value_node *)(void *)value_cell(p, value_payload(v));
}

/* n cells with any content. */
static inline fsdpck_status value_cells_reserve(value_pool *p, size_t n, uint64_t *at,
                                                fsdpck_error *err)
{
    if (p->cells.capacity - p->cells.count < n)
        RETURN_IF(vec_reserve(&p->cells, n, err));
    *at = p->cells.count;
    p->cells.count += n;
    return FSDPCK_OK;
}

static inline void value_cells_rewind(value_pool *p, uint64_t mark)
{
    if (mark < p->cells.count)
        p->cells.count = (size_t)mark;
}

/* Room for `extra` more items (pairs of a DICT) of LIST, SET, DICT; not yet counted. */
fsdpck_status value_node_reserve(value_pool *p, value v, size_t extra,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Parts of a value in order: items; keys and items in turn; or what a call consists of (7, see
 * value_walk). */
size_t value_part_count(const value_pool *p, value v);
value value_part(const value_pool *p, value v, size_t i);

enum { VALUE_CALL_PARTS = 7 };

/* OrderedDict, defaultdict, Counter, dict: see value_as_dict. */
bool value_is_dict_class(const value_pool *p, value callee);

#endif
