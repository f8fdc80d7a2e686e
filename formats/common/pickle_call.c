#include "formats/common/pickle_internal.h"

/* Whether a value may be called: numbers, texts and containers never are. */
static bool is_callable(value v)
{
    const value_kind kind = value_kind_inline(v);
    return kind == VALUE_SYMBOL || kind == VALUE_CALL || kind == VALUE_HOST;
}

/* Runs the hook on a call outside the pool. If the hook returns a replacement, the call's parts
 * (cells above the mark) are freed. */
static inline fsdpck_status ask(pickle_machine *m, const value_call *call, bool built,
                                uint64_t mark, value *replacement, bool *replaced,
                                fsdpck_error *err)
{
    *replaced = false;
    if (m->hooks->on_call == NULL)
        return FSDPCK_OK;
    RETURN_IF(m->hooks->on_call(m->hooks->ctx, m->pool, call, built, replacement, replaced, err));
    if (*replaced && !value_has_cells(*replacement))
        pickle_rewind(m, mark);
    return FSDPCK_OK;
}

/* Takes the `taken` topmost values, the parts of `call`, and pushes the call or its replacement. */
static fsdpck_status push_call(pickle_machine *m, size_t taken, const value_call *call,
                               fsdpck_error *err)
{
    const size_t first = m->stack.count - taken;
    const uint64_t mark = pickle_slot_at(m, first)->mark;
    value v = VALUE_OF_NONE;
    bool replaced;
    RETURN_IF(ask(m, call, false, mark, &v, &replaced, err));
    uint64_t depth = 0;
    if (!replaced || value_has_cells(v)) {
        for (size_t i = first; i < m->stack.count; i++)
            depth = pickle_slot_at(m, i)->depth > depth ? pickle_slot_at(m, i)->depth : depth;
        if (++depth > PICKLE_NESTING_MAX)
            return pickle_too_deep(m, err);
    }
    if (!replaced)
        RETURN_IF(value_new_call(m->pool, call, &v, err));
    *pickle_slot_at(m, first) = (pickle_slot){v, mark, depth};
    m->stack.count = first + 1;
    return FSDPCK_OK;
}

static fsdpck_status check_call(const pickle_machine *m, value callee, value args,
                                fsdpck_error *err)
{
    if (!is_callable(callee))
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_CALL, "call of a value that is not callable",
                                 err);
    if (value_kind_inline(args) != VALUE_TUPLE)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_CALL, "arguments of a call are not a tuple",
                                 err);
    return FSDPCK_OK;
}

fsdpck_status pickle_do_reduce(pickle_machine *m, value_call_how how, fsdpck_error *err)
{
    RETURN_IF(pickle_need(m, 2, err));
    const value_call call = {
        .callee = pickle_top(m, 1)->v, .args = pickle_top(m, 0)->v, .how = (uint8_t)how};
    RETURN_IF(check_call(m, call.callee, call.args, err));
    return push_call(m, 2, &call, err);
}

fsdpck_status pickle_do_newobj_ex(pickle_machine *m, fsdpck_error *err)
{
    RETURN_IF(pickle_need(m, 3, err));
    const value_call call = {.callee = pickle_top(m, 2)->v,
                             .args = pickle_top(m, 1)->v,
                             .kwargs = pickle_top(m, 0)->v,
                             .how = CALL_NEWOBJ_EX};
    RETURN_IF(check_call(m, call.callee, call.args, err));
    if (value_kind_inline(call.kwargs) != VALUE_DICT)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_CALL,
                                 "keyword arguments of a call are not a dict", err);
    return push_call(m, 3, &call, err);
}

fsdpck_status pickle_do_persid(pickle_machine *m, fsdpck_error *err)
{
    RETURN_IF(pickle_need(m, 1, err));
    const value_call call = {.args = pickle_top(m, 0)->v, .how = CALL_PERSID};
    return push_call(m, 1, &call, err);
}

fsdpck_status pickle_do_bytearray(pickle_machine *m, const uint8_t *bytes, size_t nbytes,
                                  fsdpck_error *err)
{
    value content;
    value_call call = {.how = CALL_REDUCE};
    const uint64_t mark = m->pool->cells.count;
    RETURN_IF(value_new_symbol_of(m->pool, "builtins", 8, "bytearray", 9, &call.callee, err));
    RETURN_IF(value_new_bytes(m->pool, bytes, nbytes, &content, err));
    RETURN_IF(value_new_from(m->pool, VALUE_TUPLE, &content, 1, &call.args, err));
    RETURN_IF(pickle_push(m, call.args, mark, 1, err));
    return push_call(m, 1, &call, err);
}

static fsdpck_status build_host(pickle_machine *m, fsdpck_error *err)
{
    const pickle_slot state = *pickle_top(m, 0);
    if (m->hooks->on_build_host == NULL)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_CALL,
                                 "state is set on a value that cannot have state", err);
    RETURN_IF(m->hooks->on_build_host(m->hooks->ctx, m->pool, pickle_top(m, 1)->v, state.v, err));
    m->stack.count--;
    pickle_rewind(m, state.mark);
    return FSDPCK_OK;
}

fsdpck_status pickle_do_build(pickle_machine *m, fsdpck_error *err)
{
    RETURN_IF(pickle_need(m, 2, err));
    const pickle_slot state = *pickle_top(m, 0);
    pickle_slot *slot = pickle_top(m, 1);
    const value_call *old = value_call_of(m->pool, slot->v);
    if (old != NULL && old->forwarded)
        slot->v = old->state; /* a copy of the replaced call, by DUP */
    const value_kind kind = value_kind_inline(slot->v);
    if (kind == VALUE_HOST || kind == VALUE_TENSOR)
        return build_host(m, err);
    if (kind != VALUE_CALL)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_CALL,
                                 "state is set on a value that cannot have state", err);
    value_call call = *value_call_of(m->pool, slot->v);
    if (call.has_state)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_CALL, "state of an object is set twice",
                                 err);
    RETURN_IF(pickle_deepen(m, slot, state.depth, err));
    call.state = state.v;
    call.has_state = 1;
    value replacement = VALUE_OF_NONE;
    const uint64_t at = value_payload(slot->v);
    const bool referred = at < slot->mark || at < m->pinned;
    bool replaced;
    RETURN_IF(ask(m, &call, true, slot->mark, &replacement, &replaced, err));
    m->stack.count--;
    if (!replaced) {
        *value_call_of(m->pool, slot->v) = call;
        pickle_changed(m, slot);
        return FSDPCK_OK;
    }
    if (referred) { /* the memo or another slot also holds the call */
        value_call *left = value_call_of(m->pool, slot->v);
        left->forwarded = 1;
        left->state = replacement;
    }
    slot->v = replacement;
    if (referred && value_has_cells(replacement))
        m->pinned = m->pool->cells.count;
    slot->depth = value_has_cells(replacement) ? slot->depth : 0;
    return FSDPCK_OK;
}
