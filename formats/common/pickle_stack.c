/* pickle_stack.c: errors at an opcode, and the stack of the pickle machine. */
#include "formats/common/pickle_internal.h"
#include "formats/common/pickle_skim.h"

fsdpck_status pickle_fail_input(const pickle_machine *m, fsdpck_finding_id finding,
                                const char *text, fsdpck_error *err)
{
    return pickle_error(m->in, m->op_at, FSDPCK_BADINPUT, finding, err, "%s", text);
}

fsdpck_status pickle_fail_limit(const pickle_machine *m, fsdpck_finding_id finding,
                                const char *text, fsdpck_error *err)
{
    return pickle_error(m->in, m->op_at, FSDPCK_LIMIT, finding, err, "%s", text);
}

fsdpck_status pickle_fail_stack(const pickle_machine *m, fsdpck_error *err)
{
    return pickle_fail_input(m, FSDPCK_FINDING_PKL_STACK,
                             "opcode pops more values than the stack holds", err);
}

fsdpck_status pickle_stack_grow(pickle_machine *m, fsdpck_error *err)
{
    if (m->stack.count >= m->limits->max_stack)
        return pickle_fail_limit(m, FSDPCK_FINDING_PKL_LIMIT,
                                 "pickle keeps too many values on its stack", err);
    RETURN_IF(vec_reserve(&m->stack, 1, err));
    m->stack_room =
        m->stack.capacity < m->limits->max_stack ? m->stack.capacity : (size_t)m->limits->max_stack;
    return FSDPCK_OK;
}

void pickle_rewind(pickle_machine *m, uint64_t mark)
{
    if (mark < m->pinned)
        mark = m->pinned;
    while (m->last_dict > mark)
        m->last_dict = value_node_of(m->pool, value_make(VALUE_DICT, m->last_dict - 1))->note;
    value_cells_rewind(m->pool, mark);
}

fsdpck_status pickle_too_deep(const pickle_machine *m, fsdpck_error *err)
{
    return pickle_fail_limit(m, FSDPCK_FINDING_PKL_DEPTH, "containers are nested too deeply", err);
}

fsdpck_status pickle_refuse_gap(const pickle_machine *m, fsdpck_error *err)
{
    return pickle_fail_input(m, FSDPCK_FINDING_PKL_MARK, "pickle is not as its gaps need it", err);
}

fsdpck_status pickle_close_mark(pickle_machine *m, size_t *first, fsdpck_error *err)
{
    if (m->gap_marks != 0 && m->gap_marks == m->marks.count)
        return pickle_refuse_gap(m, err);
    if (m->marks.count == 0)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_MARK,
                                 "opcode requires a mark, but the stack has none", err);
    *first = m->fence;
    m->marks.count--;
    m->fence = m->marks.count > 0 ? *VEC_AT(&m->marks, size_t, m->marks.count - 1) : 0;
    return FSDPCK_OK;
}
