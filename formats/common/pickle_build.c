#include <string.h>

#include "formats/common/pickle_internal.h"
#include "state/value_map.h"

fsdpck_status pickle_do_tuple(pickle_machine *m, value_kind kind, size_t first, fsdpck_error *err)
{
    const size_t count = m->stack.count - first;
    if (count == 0)
        return pickle_push_plain(m, value_make(kind, VALUE_NO_CELLS), err);
    uint64_t at;
    RETURN_IF(value_cells_reserve(m->pool, count + 1, &at, err));
    uint64_t *cells = value_cell(m->pool, at);
    pickle_slot *slots = pickle_slot_at(m, first);
    uint64_t depth = 0;
    cells[0] = count;
    for (size_t i = 0; i < count; i++) {
        cells[1 + i] = slots[i].v;
        depth = slots[i].depth > depth ? slots[i].depth : depth;
    }
    /* The mark of the first part stays. */
    slots[0].v = value_make(kind, at);
    slots[0].depth = depth + 1;
    m->stack.count = first + 1;
    return depth < PICKLE_NESTING_MAX ? FSDPCK_OK : pickle_too_deep(m, err);
}

/* A new node; dicts are chained for pickle_dedup_dicts. */
static fsdpck_status new_node(pickle_machine *m, value_kind kind, value *v, fsdpck_error *err)
{
    if (kind == VALUE_LIST)
        return value_new_list(m->pool, v, err);
    if (kind == VALUE_SET)
        return value_new_set(m->pool, v, err);
    RETURN_IF(value_new_dict(m->pool, v, err));
    value_node_of(m->pool, *v)->note = m->last_dict;
    m->last_dict = value_payload(*v) + 1;
    return FSDPCK_OK;
}

fsdpck_status pickle_do_empty(pickle_machine *m, value_kind kind, fsdpck_error *err)
{
    const uint64_t mark = m->pool->cells.count;
    value v;
    RETURN_IF(new_node(m, kind, &v, err));
    return pickle_push(m, v, mark, 1, err);
}

/* Puts a new, empty container below the values that are about to enter it. */
static fsdpck_status insert_node(pickle_machine *m, value_kind kind, size_t first,
                                 fsdpck_error *err)
{
    const size_t count = m->stack.count - first;
    const uint64_t mark = count > 0 ? pickle_slot_at(m, first)->mark : m->pool->cells.count;
    value v;
    RETURN_IF(new_node(m, kind, &v, err));
    RETURN_IF(pickle_push(m, v, mark, 1, err));
    pickle_slot *slots = pickle_slot_at(m, first);
    const pickle_slot made = slots[count];
    memmove(slots + 1, slots, count * sizeof(*slots));
    slots[0] = made;
    return FSDPCK_OK;
}

fsdpck_status pickle_do_list(pickle_machine *m, size_t first, fsdpck_error *err)
{
    RETURN_IF(insert_node(m, VALUE_LIST, first, err));
    return pickle_do_items(m, first + 1, err);
}

fsdpck_status pickle_do_dict(pickle_machine *m, size_t first, fsdpck_error *err)
{
    RETURN_IF(insert_node(m, VALUE_DICT, first, err));
    return pickle_do_pairs(m, first + 1, err);
}

/* The LIST, DICT or SET (kind) that receives items of the value at stack index i: itself, or a
 * container of the call, created on demand. */
static fsdpck_status target_of(pickle_machine *m, size_t i, value_kind kind, value *target,
                               fsdpck_error *err)
{
    const value v = pickle_slot_at(m, i)->v;
    if (value_kind_inline(v) == kind) {
        *target = v;
        return FSDPCK_OK;
    }
    if (value_kind_inline(v) != VALUE_CALL)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_CALL,
                                 "items added to a value that cannot hold items", err);
    const value_call *call = value_call_of(m->pool, v);
    *target = kind == VALUE_LIST   ? call->list_items
              : kind == VALUE_DICT ? call->dict_items
                                   : call->set_items;
    if (*target != VALUE_OF_NONE)
        return FSDPCK_OK;
    RETURN_IF(new_node(m, kind, target, err));
    value_call *changed = value_call_of(m->pool, v);
    if (kind == VALUE_LIST)
        changed->list_items = *target;
    else if (kind == VALUE_DICT)
        changed->dict_items = *target;
    else
        changed->set_items = *target;
    return FSDPCK_OK;
}

/* Moves the values from stack index `first` on into the container of the slot below. */
static fsdpck_status take_items(pickle_machine *m, size_t first, value_kind kind, fsdpck_error *err)
{
    const size_t count = m->stack.count - first;
    const size_t nitems = kind == VALUE_DICT ? count / 2 : count;
    if (count == 0)
        return FSDPCK_OK;
    value target;
    RETURN_IF(target_of(m, first - 1, kind, &target, err));
    RETURN_IF(value_node_reserve(m->pool, target, nitems, err));
    value_node *node = value_node_of(m->pool, target);
    uint64_t *cells = value_cell(m->pool, node->items_at) +
                      (kind == VALUE_DICT ? 2 * (size_t)node->count : node->count);
    pickle_slot *slot = pickle_slot_at(m, first - 1);
    uint64_t depth = 0;
    for (size_t i = 0; i < count; i++) {
        cells[i] = slot[1 + i].v;
        depth = slot[1 + i].depth > depth ? slot[1 + i].depth : depth;
    }
    node->count += (uint32_t)nitems;
    m->stack.count = first;
    pickle_changed(m, slot);
    return pickle_deepen(m, slot, depth, err);
}

/* Offers a batch of notes to the hook. */
static fsdpck_status offer_items(pickle_machine *m, size_t first, bool *taken, fsdpck_error *err)
{
    const size_t count = m->stack.count - first;
    const value list = pickle_slot_at(m, first - 1)->v;
    if (m->hooks->on_items == NULL || count == 0 || value_kind_inline(list) != VALUE_LIST)
        return FSDPCK_OK;
    for (size_t i = first; i < m->stack.count; i++) {
        if (value_kind_inline(pickle_slot_at(m, i)->v) != VALUE_HOST)
            return FSDPCK_OK;
    }
    m->scratch.count = 0;
    value *items = vec_push_n(&m->scratch, count, err);
    if (items == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++)
        items[i] = pickle_slot_at(m, first + i)->v;
    uint64_t note = value_node_of(m->pool, list)->note;
    RETURN_IF(m->hooks->on_items(m->hooks->ctx, m->pool, items, count, &note, taken, err));
    value_node_of(m->pool, list)->note = note;
    return FSDPCK_OK;
}

fsdpck_status pickle_do_items(pickle_machine *m, size_t first, fsdpck_error *err)
{
    if (first <= m->fence)
        return pickle_fail_stack(m, err);
    bool taken = false;
    RETURN_IF(offer_items(m, first, &taken, err));
    if (taken)
        m->stack.count = first;
    return take_items(m, first, VALUE_LIST, err);
}

fsdpck_status pickle_do_members(pickle_machine *m, size_t first, fsdpck_error *err)
{
    return first <= m->fence ? pickle_fail_stack(m, err) : take_items(m, first, VALUE_SET, err);
}

/* Drops the pairs that the hook takes. */
static fsdpck_status offer_pairs(pickle_machine *m, size_t first, fsdpck_error *err)
{
    size_t kept = first;
    for (size_t i = first; i < m->stack.count; i += 2) {
        const value key = pickle_slot_at(m, i)->v;
        const value item = pickle_slot_at(m, i + 1)->v;
        bool taken = false;
        if (value_kind_inline(key) == VALUE_HOST || value_kind_inline(item) == VALUE_HOST)
            RETURN_IF(m->hooks->on_pair(m->hooks->ctx, m->pool, key, item, &taken, err));
        if (taken)
            continue;
        if (kept < i) {
            *pickle_slot_at(m, kept) = *pickle_slot_at(m, i);
            *pickle_slot_at(m, kept + 1) = *pickle_slot_at(m, i + 1);
        }
        kept += 2;
    }
    m->stack.count = kept;
    return FSDPCK_OK;
}

fsdpck_status pickle_do_pairs(pickle_machine *m, size_t first, fsdpck_error *err)
{
    if (first <= m->fence)
        return pickle_fail_stack(m, err);
    if ((m->stack.count - first) % 2 != 0)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_ODD, "dict key without a value", err);
    if (m->hooks->on_pair != NULL)
        RETURN_IF(offer_pairs(m, first, err));
    return take_items(m, first, VALUE_DICT, err);
}

uint64_t value_list_note(const value_pool *p, value list)
{
    return value_kind_inline(list) == VALUE_LIST ? value_node_of(p, list)->note : 0;
}

/* Positions of keys by a number, one map per kind of number, so that kinds cannot collide. */
typedef enum number_kind { NUMBER_HANDLE, NUMBER_WIDE, NUMBER_FRACTION, NUMBER_KINDS } number_kind;

typedef struct key_places {
    value_map by[NUMBER_KINDS];
} key_places;

/* A number that is the same for equal keys (or NaN) and only for these. Never 0. */
static uint64_t key_number(const value_pool *p, value key, number_kind *kind)
{
    const int64_t narrow = INT64_C(1) << 53; /* doubles hold all such integers */
    const double most = 9223372036854775808.0;
    int64_t i;
    uint64_t bits;
    double d = 0;
    *kind = NUMBER_HANDLE;
    if (key == VALUE_OF_NONE)
        return UINT64_MAX;
    if (!value_as_i64(p, key, &i)) {
        if (!value_as_double(p, key, &d))
            return key;
        const bool whole = d >= -most && d < most && (double)(int64_t)d == d;
        if (!whole) {
            *kind = NUMBER_FRACTION;
            memcpy(&bits, &d, sizeof bits);
            return bits;
        }
        i = (int64_t)d;
    }
    if (i > -narrow && i < narrow)
        return value_make(VALUE_INT, (uint64_t)i & (VALUE_PAYLOAD_MASK >> 1));
    *kind = NUMBER_WIDE;
    return (uint64_t)i;
}

/* Finds the pair among items[0..2 * count) whose key equals that of `pair`; `count` if none. */
static fsdpck_status find_key(const value_pool *p, const value *items, size_t count, value key,
                              key_places *places, size_t *found, fsdpck_error *err)
{
    *found = count;
    if (places == NULL) {
        for (size_t i = 0; i < count && *found == count; i++) {
            if (value_keys_equal(p, items[2 * i], key))
                *found = i;
        }
        return FSDPCK_OK;
    }
    bool fresh = false;
    number_kind kind;
    const uint64_t number = key_number(p, key, &kind);
    uint64_t *place = value_map_put(&places->by[kind], number, &fresh, err);
    if (place == NULL)
        return FSDPCK_LIMIT;
    if (fresh)
        *place = count;
    else if (value_keys_equal(p, items[2 * *place], key))
        *found = (size_t)*place;
    return FSDPCK_OK;
}

static fsdpck_status settle_dict(pickle_machine *m, value dict, fsdpck_error *err)
{
    enum { LINEAR_MOST = 8 };
    const size_t count = value_node_of(m->pool, dict)->count;
    const value_map empty = VALUE_MAP(m->pool->owner);
    key_places places = {{empty, empty, empty}};
    fsdpck_status st = FSDPCK_OK;
    size_t kept = 0;
    for (size_t i = 0; i < count && st == FSDPCK_OK; i++) {
        /* Fetched each time, because the hook may grow the pool. */
        value *items = value_cell(m->pool, value_node_of(m->pool, dict)->items_at);
        const value key = items[2 * i];
        size_t found = 0;
        st = find_key(m->pool, items, kept, key, count > LINEAR_MOST ? &places : NULL, &found, err);
        if (st != FSDPCK_OK)
            break;
        items[2 * found] = found < kept ? items[2 * found] : key;
        items[2 * found + 1] = items[2 * i + 1];
        if (found == kept)
            kept++;
        else if (m->hooks->on_duplicate_key != NULL)
            st = m->hooks->on_duplicate_key(m->hooks->ctx, m->pool, dict, key, err);
    }
    for (size_t i = 0; i < NUMBER_KINDS; i++)
        value_map_release(&places.by[i]);
    value_node_of(m->pool, dict)->count = (uint32_t)kept;
    return st;
}

fsdpck_status pickle_dedup_dicts(pickle_machine *m, fsdpck_error *err)
{
    while (m->last_dict > 0) {
        const value dict = value_make(VALUE_DICT, m->last_dict - 1);
        value_node *node = value_node_of(m->pool, dict);
        m->last_dict = node->note;
        node->note = 0;
        if (node->count > 1)
            RETURN_IF(settle_dict(m, dict, err));
    }
    return FSDPCK_OK;
}
