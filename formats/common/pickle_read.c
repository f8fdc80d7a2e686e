#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "formats/common/pickle_internal.h"
#include "formats/common/pickle_opcodes.h"
#include "formats/common/pickle_skim.h"

static fsdpck_status memo_store(pickle_machine *m, uint64_t index, fsdpck_error *err)
{
    RETURN_IF(pickle_need(m, 1, err));
    value *entry = pickle_memo_at(&m->memo, index);
    if (entry == NULL)
        return FSDPCK_OK;
    *entry = pickle_top(m, 0)->v;
    if (m->recent[index % PICKLE_RECENT].index1 == index + 1)
        m->recent[index % PICKLE_RECENT].index1 = 0;
    if (value_has_cells(*entry))
        m->pinned = m->pool->cells.count;
    return FSDPCK_OK;
}

static inline fsdpck_status memoize(pickle_machine *m, fsdpck_error *err)
{
    const uint64_t index = m->memoized++;
    const bool wanted = (m->wanted & 1) != 0;
    m->wanted >>= 1;
    if (m->memoized % 64 == 0)
        m->wanted = pickle_memo_marked_from(&m->memo, m->memoized);
    return wanted ? memo_store(m, index, err) : pickle_need(m, 1, err);
}

static fsdpck_status memo_fetch_slowly(pickle_machine *m, uint64_t index, fsdpck_error *err)
{
    const value *entry = pickle_memo_at(&m->memo, index);
    if (entry == NULL || *entry == PICKLE_MEMO_UNSET)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_MEMO,
                                 "memo entry is fetched before it is stored", err);
    if (value_kind_inline(*entry) == VALUE_CALL) { /* may still be replaced: not kept as recent */
        const value_call *call = value_call_of(m->pool, *entry);
        return pickle_push_plain(m, call->forwarded ? call->state : *entry, err);
    }
    m->recent[index % PICKLE_RECENT] = (pickle_recent){index + 1, *entry};
    return pickle_push_plain(m, *entry, err);
}

static inline fsdpck_status memo_fetch(pickle_machine *m, uint64_t index, fsdpck_error *err)
{
    const pickle_recent *recent = &m->recent[index % PICKLE_RECENT];
    if (recent->index1 == index + 1)
        return pickle_push_plain(m, recent->v, err);
    return memo_fetch_slowly(m, index, err);
}

static fsdpck_status do_mark(pickle_machine *m, fsdpck_error *err)
{
    if (m->marks.count >= m->limits->max_depth)
        return pickle_fail_limit(m, FSDPCK_FINDING_PKL_DEPTH, "too many marks are open", err);
    RETURN_IF(vec_add(&m->marks, &(size_t){m->stack.count}, err));
    m->fence = m->stack.count;
    return FSDPCK_OK;
}

/* As Python: POP right after MARK removes the mark. */
static fsdpck_status do_pop(pickle_machine *m, fsdpck_error *err)
{
    size_t first;
    if (m->marks.count > 0 && m->stack.count == m->fence)
        return pickle_close_mark(m, &first, err);
    RETURN_IF(pickle_need(m, 1, err));
    m->stack.count--;
    return FSDPCK_OK;
}

static fsdpck_status do_long(pickle_machine *m, unsigned width, fsdpck_error *err)
{
    const uint8_t *p = m->in->bytes + m->at;
    const size_t nbytes = width == 1 ? p[0] : load_le32(p);
    const uint64_t mark = m->pool->cells.count;
    value v;
    RETURN_IF(value_new_bigint(m->pool, p + width, nbytes, &v, err));
    m->at += width + nbytes;
    return pickle_push(m, v, mark, 0, err);
}

static fsdpck_status do_float(pickle_machine *m, fsdpck_error *err)
{
    const uint64_t bits = load_be64(m->in->bytes + m->at);
    const uint64_t mark = m->pool->cells.count;
    double d;
    value v;
    memcpy(&d, &bits, sizeof(d));
    RETURN_IF(value_new_float(m->pool, d, &v, err));
    m->at += 8;
    return pickle_push(m, v, mark, 0, err);
}

static fsdpck_status push_bytes(pickle_machine *m, const uint8_t *bytes, size_t nbytes,
                                fsdpck_error *err)
{
    value v;
    RETURN_IF(value_new_bytes(m->pool, bytes, nbytes, &v, err));
    return pickle_push_plain(m, v, err);
}

/* Opcodes with a length and that many bytes. */
static fsdpck_status do_counted(pickle_machine *m, uint8_t op, fsdpck_error *err)
{
    const uint8_t *p = m->in->bytes + m->at;
    uint64_t nbytes = p[0];
    size_t width = 1;
    if (op == OP_BINUNICODE8 || op == OP_BINBYTES8 || op == OP_BYTEARRAY8) {
        nbytes = load_le64(p);
        width = 8;
    } else if (op != OP_SHORT_BINUNICODE && op != OP_SHORT_BINBYTES && op != OP_SHORT_BINSTRING) {
        nbytes = load_le32(p);
        width = 4;
    }
    m->at += width + (size_t)nbytes;
    p += width;
    switch (op) {
    case OP_BINBYTES:
    case OP_SHORT_BINBYTES:
    case OP_BINBYTES8:
        return push_bytes(m, p, (size_t)nbytes, err);
    case OP_BYTEARRAY8:
        return pickle_do_bytearray(m, p, (size_t)nbytes, err);
    case OP_BINSTRING:
    case OP_SHORT_BINSTRING:
        return pickle_push_python2_str(m, p, (size_t)nbytes, err);
    default:
        return pickle_push_str(m, p, (size_t)nbytes, err);
    }
}

static fsdpck_status push_small_int(pickle_machine *m, int64_t i, fsdpck_error *err)
{
    value v;
    RETURN_IF(value_new_int(m->pool, i, &v, err));
    return pickle_push_plain(m, v, err);
}

static fsdpck_status do_fetch_or_store(pickle_machine *m, uint8_t op, fsdpck_error *err)
{
    const uint8_t *p = m->in->bytes + m->at;
    uint64_t index = 0;
    size_t nbytes = op == OP_BINPUT || op == OP_BINGET ? 1 : 4;
    if (op == OP_PUT || op == OP_GET) {
        if (!pickle_line(m->in, m->at, &nbytes) || !pickle_decimal(p, nbytes, &index))
            return pickle_fail_input(m, FSDPCK_FINDING_PKL_INT, "memo index is not a number", err);
        nbytes++;
    } else {
        index = nbytes == 1 ? p[0] : load_le32(p);
    }
    m->at += nbytes;
    if (op == OP_PUT || op == OP_BINPUT || op == OP_LONG_BINPUT)
        return memo_store(m, index, err);
    return memo_fetch(m, index, err);
}

/* Rare opcodes that take all values above the last mark. */
static fsdpck_status do_marked(pickle_machine *m, uint8_t op, fsdpck_error *err)
{
    size_t first = 0;
    RETURN_IF(pickle_close_mark(m, &first, err));
    switch (op) {
    case OP_FROZENSET:
        return pickle_do_tuple(m, VALUE_FROZENSET, first, err);
    case OP_LIST:
        return pickle_do_list(m, first, err);
    case OP_DICT:
        return pickle_do_dict(m, first, err);
    case OP_ADDITEMS:
        return pickle_do_members(m, first, err);
    default: /* OP_POP_MARK */
        m->stack.count = first;
        return FSDPCK_OK;
    }
}

static fsdpck_status do_dup(pickle_machine *m, fsdpck_error *err)
{
    RETURN_IF(pickle_need(m, 1, err));
    const pickle_slot top = *pickle_top(m, 0);
    return pickle_push(m, top.v, m->pool->cells.count, top.depth, err);
}

/* Opcodes that a large .metadata does not use for each chunk. */
static fsdpck_status run_rare(pickle_machine *m, uint8_t op, fsdpck_error *err)
{
    switch (op) {
    case OP_PROTO:
        m->at += 1;
        return FSDPCK_OK;
    case OP_FRAME:
        m->at += 8;
        return FSDPCK_OK;
    case OP_POP:
        return do_pop(m, err);
    case OP_DUP:
        return do_dup(m, err);
    case OP_BINFLOAT:
        return do_float(m, err);
    case OP_LONG1:
        return do_long(m, 1, err);
    case OP_LONG4:
        return do_long(m, 4, err);
    case OP_GET:
    case OP_PUT:
    case OP_BINPUT:
    case OP_LONG_BINPUT:
        return do_fetch_or_store(m, op, err);
    case OP_EMPTY_SET:
        return pickle_do_empty(m, VALUE_SET, err);
    case OP_LIST:
    case OP_DICT:
    case OP_FROZENSET:
    case OP_ADDITEMS:
    case OP_POP_MARK:
        return do_marked(m, op, err);
    case OP_BINPERSID:
        return pickle_do_persid(m, err);
    case OP_NEWOBJ_EX:
        return pickle_do_newobj_ex(m, err);
    case OP_STACK_GLOBAL:
        return pickle_do_stack_global(m, err);
    case OP_GLOBAL:
        return pickle_do_global(m, err);
    case OP_GAP:
        return pickle_do_gap(m, err);
    case OP_SHORT_BINBYTES:
    case OP_SHORT_BINSTRING:
    case OP_BINSTRING:
    case OP_BINUNICODE:
    case OP_BINUNICODE8:
    case OP_BINBYTES:
    case OP_BINBYTES8:
    case OP_BYTEARRAY8:
        return do_counted(m, op, err);
    default:
        return pickle_do_line(m, op, err);
    }
}

static fsdpck_status do_tuple(pickle_machine *m, size_t first, fsdpck_error *err)
{
    return pickle_do_tuple(m, VALUE_TUPLE, first, err);
}

static inline fsdpck_status do_last(pickle_machine *m, size_t count,
                                    fsdpck_status (*fn)(pickle_machine *, size_t, fsdpck_error *),
                                    fsdpck_error *err)
{
    RETURN_IF(pickle_need(m, count, err));
    return fn(m, m->stack.count - count, err);
}

static inline fsdpck_status do_batch(pickle_machine *m, bool pairs, fsdpck_error *err)
{
    size_t first = 0;
    if (m->gap_marks != 0 && m->gap_marks == m->marks.count)
        return pickle_end_gap(m, pairs, err);
    RETURN_IF(pickle_close_mark(m, &first, err));
    return pairs ? pickle_do_pairs(m, first, err) : pickle_do_items(m, first, err);
}

/* One opcode, except STOP and MEMOIZE. The cases are those that a large .metadata contains for each
 * chunk. */
static inline fsdpck_status run_one(pickle_machine *m, uint8_t op, fsdpck_error *err)
{
    const uint8_t *const p = m->in->bytes + m->at;
    size_t first = 0;
    switch (op) {
    case OP_BINGET:
    case OP_LONG_BINGET:
        m->at += op == OP_BINGET ? 1 : 4;
        return memo_fetch(m, op == OP_BINGET ? p[0] : load_le32(p), err);
    case OP_MARK:
        return do_mark(m, err);
    case OP_TUPLE1:
    case OP_TUPLE2:
    case OP_TUPLE3:
        return do_last(m, (size_t)op - OP_TUPLE1 + 1, do_tuple, err);
    case OP_EMPTY_TUPLE:
        return pickle_push_plain(m, value_make(VALUE_TUPLE, VALUE_NO_CELLS), err);
    case OP_BININT1:
        m->at += 1;
        return pickle_push_plain(m, value_make(VALUE_INT, p[0]), err);
    case OP_BININT2:
        m->at += 2;
        return pickle_push_plain(m, value_make(VALUE_INT, load_le16(p)), err);
    case OP_BININT:
        m->at += 4;
        return push_small_int(m, (int32_t)load_le32(p), err);
    case OP_SHORT_BINUNICODE:
        m->at += 1u + p[0];
        return pickle_push_str(m, p + 1, p[0], err);
    case OP_NONE:
        return pickle_push_plain(m, VALUE_OF_NONE, err);
    case OP_NEWFALSE:
    case OP_NEWTRUE:
        return pickle_push_plain(m, value_of_bool(op == OP_NEWTRUE), err);
    case OP_EMPTY_DICT:
        return pickle_do_empty(m, VALUE_DICT, err);
    case OP_EMPTY_LIST:
        return pickle_do_empty(m, VALUE_LIST, err);
    case OP_NEWOBJ:
    case OP_REDUCE:
        return pickle_do_reduce(m, op == OP_NEWOBJ ? CALL_NEWOBJ : CALL_REDUCE, err);
    case OP_BUILD:
        return pickle_do_build(m, err);
    case OP_APPEND:
        return do_last(m, 1, pickle_do_items, err);
    case OP_SETITEM:
        return do_last(m, 2, pickle_do_pairs, err);
    case OP_TUPLE:
        RETURN_IF(pickle_close_mark(m, &first, err));
        return pickle_do_tuple(m, VALUE_TUPLE, first, err);
    case OP_APPENDS:
    case OP_SETITEMS:
        return do_batch(m, op == OP_SETITEMS, err);
    default:
        return run_rare(m, op, err);
    }
}

static fsdpck_status run(pickle_machine *m, size_t nbytes, value *root, fsdpck_error *err)
{
    const uint8_t *const bytes = m->in->bytes;
    m->wanted = pickle_memo_marked_from(&m->memo, 0);
    while (bytes[m->at] != OP_STOP) {
        m->op_at = m->at++;
        /* Every fourth opcode is this one; a test here avoids a mispredicted jump. */
        if (bytes[m->op_at] == OP_MEMOIZE)
            RETURN_IF(memoize(m, err));
        else
            RETURN_IF(run_one(m, bytes[m->op_at], err));
    }
    m->op_at = nbytes - 1;
    if (m->marks.count > 0)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_MARK, "a mark is still open at STOP", err);
    RETURN_IF(pickle_need(m, 1, err));
    if (m->stack.count > 1)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_MARK, "more than one value is left at STOP",
                                 err);
    *root = pickle_top(m, 0)->v;
    return pickle_dedup_dicts(m, err);
}

static bool is_about_code(fsdpck_finding_id finding)
{
    return finding == FSDPCK_FINDING_PKL_GLOBAL || finding == FSDPCK_FINDING_PKL_GETATTR ||
           finding == FSDPCK_FINDING_PKL_CALL;
}

/* Python runs a truncated pickle up to its end, so a dangerous call before it is also reported.
 * `err` is from the first pass, with the offset of the invalid opcode. */
static void report_before(pickle_machine *m, fsdpck_error *err)
{
    const pickle_input *in = m->in;
    const uint64_t nbytes = err->offset_bytes - in->file_offset_bytes;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    value made;
    if (nbytes > in->nbytes ||
        pickle_memo_prepare(&m->memo, m->limits->max_memo, NULL) != FSDPCK_OK)
        return;
    uint8_t *bytes = budget_alloc(m->pool->owner, nbytes + 1, NULL);
    if (bytes == NULL)
        return;
    memcpy(bytes, in->bytes, nbytes);
    bytes[nbytes] = OP_STOP;
    const pickle_input before = {bytes, nbytes + 1, in->file_offset_bytes, NULL};
    m->in = &before;
    if (run(m, nbytes + 1, &made, &what) != FSDPCK_OK && is_about_code(what.finding)) {
        const size_t at = strlen(err->message);
        /* Complete or not at all: a name must not be cut inside a character. */
        if (at + strlen(what.message) + 16 < sizeof err->message)
            snprintf(err->message + at, sizeof err->message - at, "; before that: %.*s",
                     (int)(sizeof err->message - at - 16), what.message);
    }
    m->in = in;
    budget_free(m->pool->owner, bytes, nbytes + 1);
}

fsdpck_status pickle_read(const pickle_input *in, const pickle_limits *limits, value_pool *pool,
                          const pickle_hooks *hooks, value *root, size_t *consumed_nbytes,
                          fsdpck_error *err)
{
    static const pickle_hooks no_hooks = {0};
    pickle_machine m = {.in = in,
                        .limits = limits,
                        .hooks = hooks != NULL ? hooks : &no_hooks,
                        .pool = pool,
                        .memo = {.blocks = VEC_OF(pickle_memo_block, pool->owner),
                                 .entries = VEC_OF(value, pool->owner)},
                        .stack = VEC_OF(pickle_slot, pool->owner),
                        .marks = VEC_OF(size_t, pool->owner),
                        .scratch = VEC_OF(value, pool->owner)};
    value made = VALUE_OF_NONE;
    size_t nbytes = 0;
    fsdpck_status st;
    st = pickle_skim_all(in, &m.memo, &nbytes, err);
    if (st == FSDPCK_BADINPUT && err != NULL && hooks != NULL)
        report_before(&m, err);
    if (st != FSDPCK_OK)
        goto out;
    for (size_t i = 0; in->gaps != NULL && i < in->gaps->fetched.count; i++)
        GOTO_IF(pickle_memo_mark(&m.memo, *VEC_AT(&in->gaps->fetched, const uint64_t, i), err),
                out);
    GOTO_IF(pickle_memo_prepare(&m.memo, limits->max_memo, err), out);
    GOTO_IF(run(&m, nbytes, &made, err), out);
    *root = made;
    *consumed_nbytes = nbytes;
out:
    error_offset(st != FSDPCK_OK ? err : NULL, in->file_offset_bytes + m.op_at);
    pickle_memo_release(&m.memo);
    VEC_RELEASE_ALL(&m.stack, &m.marks, &m.scratch);
    return st;
}
