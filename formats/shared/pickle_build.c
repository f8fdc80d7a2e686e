#include <string.h>

#include "formats/shared/pickle_machine.h"
#include "state/value_map.h"

/* Where the parts of what is made from the values at `first` and above begin. */
static uint64_t mark_of(const pickle_machine *m, size_t first)
{
    return first < m->stack.count ? pickle_slot_at(m, first)->mark : m->pool->cells.count;
}

/* Puts a container in the place of the values that it was made from. */
static fsdpck_status replace_from(pickle_machine *m, size_t first, value made, fsdpck_error *err)
{
    pickle_slot slot = {.v = made, .mark = mark_of(m, first)};
    for (size_t i = first; i < m->stack.count; i++)
        RETURN_IF(pickle_deepen(m, &slot, pickle_slot_at(m, i)->depth, err));
    m->stack.count = first;
    return pickle_push(m, slot.v, slot.mark, slot.depth, err);
}

fsdpck_status pickle_do_tuple(pickle_machine *m, value_kind kind, size_t first, fsdpck_error *err)
{
    const size_t count = m->stack.count - first;
    uint64_t at = VALUE_NO_CELLS;
    if (count > 0) {
        RETURN_IF(value_cells_take(m->pool, count + 1, &at, err));
        uint64_t *cells = value_cell(m->pool, at);
        cells[0] = count;
        for (size_t i = 0; i < count; i++)
            cells[1 + i] = pickle_slot_at(m, first + i)->v;
    }
    /* The tuple's own cells came after its parts', so the mark is that of the first part. */
    pickle_slot slot = {.v = value_make(kind, at),
                        .mark = count > 0 ? pickle_slot_at(m, first)->mark : m->pool->cells.count};
    for (size_t i = 0; i < count; i++)
        RETURN_IF(pickle_deepen(m, &slot, pickle_slot_at(m, first + i)->depth, err));
    m->stack.count = first;
    return pickle_push(m, slot.v, slot.mark, slot.depth, err);
}

/* A new node; dicts are chained for pickle_settle_dicts. */
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
