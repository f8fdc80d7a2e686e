/* pickle_internal.h: shared state of the pickle machine's files.
 *
 * The memory of values that a hook has replaced is freed by rewinding the pool. This is safe
 * because
 *
 * - a slot's `mark` is the number of cells before the first part of its value was created. All
 *   values below it in the stack were complete by then and have no cells above the mark;
 * - the first `pinned` cells must always stay. A value in a memo entry that is fetched later pins
 *   all cells that exist then. So does a change of a container or call that is older than its
 *   slot's mark (from the memo or DUP) or is pinned: its new cells are above the mark of its slot.
 */
#ifndef FSDPCK_FORMATS_COMMON_PICKLE_INTERNAL_H
#define FSDPCK_FORMATS_COMMON_PICKLE_INTERNAL_H

#include "formats/common/pickle.h"
#include "formats/common/pickle_memo.h"
#include "state/value_cells.h"

typedef struct pickle_slot {
    value v;
    uint64_t mark;  /* cells before it began */
    uint64_t depth; /* nesting of containers, without those fetched from the memo */
} pickle_slot;

/* Recently fetched entries, by the low bits of their index: each chunk fetches the same few.
 */
enum { PICKLE_RECENT = 256 };

typedef struct pickle_recent {
    uint64_t index1; /* index + 1; 0: none */
    value v;
} pickle_recent;

typedef struct pickle_machine {
    const pickle_input *in;
    const pickle_limits *limits;
    const pickle_hooks *hooks; /* never NULL */
    value_pool *pool;
    pickle_memo memo;
    vec stack;         /* pickle_slot */
    size_t stack_room; /* slots that may be used */
    vec marks;         /* size_t: stack height at each open mark */
    vec scratch;       /* value: items passed to on_items */
    size_t fence;      /* height at the last open mark: nothing below may be taken */
    size_t at;         /* next byte */
    size_t op_at;      /* opcode being run */
    uint64_t memoized; /* entries that MEMOIZE has made */
    uint64_t
        wanted; /* one bit for each next entry: fetched or not, up to the end of the memo's block */
    uint64_t pinned; /* cells that must stay */
    pickle_recent recent[PICKLE_RECENT];
    uint64_t last_dict; /* first cell + 1 of the last dict; its note refers to the one before */
    size_t gap;         /* number of the next gap */
    size_t gap_marks;   /* open marks at a gap whose mark is still open; 0: none */
    bool gap_pairs;     /* that gap's kind: only SETITEMS, or only APPENDS, may close its mark */
} pickle_machine;

enum { PICKLE_NESTING_MAX = 10000 };

/* pickle_stack.c: error at the opcode being run. Returns BADINPUT (LIMIT in the second form). */
fsdpck_status pickle_fail_input(const pickle_machine *m, fsdpck_finding_id finding,
                                const char *text, fsdpck_error *err);
fsdpck_status pickle_fail_limit(const pickle_machine *m, fsdpck_finding_id finding,
                                const char *text, fsdpck_error *err);
fsdpck_status pickle_fail_stack(const pickle_machine *m, fsdpck_error *err);
/* A gap, or an opcode after it, that the machine cannot give the meaning of the whole pickle. */
fsdpck_status pickle_refuse_gap(const pickle_machine *m, fsdpck_error *err);
fsdpck_status pickle_stack_grow(pickle_machine *m, fsdpck_error *err);

static inline pickle_slot *pickle_slot_at(const pickle_machine *m, size_t i)
{
    return VEC_AT(&m->stack, pickle_slot, i);
}

/* The i-th slot from the top, 0 being the top itself. */
static inline pickle_slot *pickle_top(const pickle_machine *m, size_t i)
{
    return pickle_slot_at(m, m->stack.count - 1 - i);
}

static inline fsdpck_status pickle_need(const pickle_machine *m, size_t n, fsdpck_error *err)
{
    return m->stack.count - m->fence < n ? pickle_fail_stack(m, err) : FSDPCK_OK;
}

static inline fsdpck_status pickle_push(pickle_machine *m, value v, uint64_t mark, uint64_t depth,
                                        fsdpck_error *err)
{
    if (m->stack.count == m->stack_room)
        RETURN_IF(pickle_stack_grow(m, err));
    *VEC_AT(&m->stack, pickle_slot, m->stack.count) = (pickle_slot){v, mark, depth};
    m->stack.count++;
    return FSDPCK_OK;
}

/* A value without cells, or with old cells. */
static inline fsdpck_status pickle_push_plain(pickle_machine *m, value v, fsdpck_error *err)
{
    return pickle_push(m, v, m->pool->cells.count, 0, err);
}

/* Frees the cells above the mark that are not pinned. */
void pickle_rewind(pickle_machine *m, uint64_t mark);

/* Call this after changing a value in a slot in place. */
static inline void pickle_changed(pickle_machine *m, const pickle_slot *slot)
{
    const uint64_t at = value_payload(slot->v);
    if (at < slot->mark || at < m->pinned)
        m->pinned = m->pool->cells.count;
}

fsdpck_status pickle_too_deep(const pickle_machine *m, fsdpck_error *err);

/* Updates the nesting depth of a slot that receives a value. */
static inline fsdpck_status pickle_deepen(const pickle_machine *m, pickle_slot *slot,
                                          uint64_t inner_depth, fsdpck_error *err)
{
    if (slot->depth <= inner_depth)
        slot->depth = inner_depth + 1;
    return slot->depth <= PICKLE_NESTING_MAX ? FSDPCK_OK : pickle_too_deep(m, err);
}

/* Closes the last mark: *first is the stack index of the first value above it. */
fsdpck_status pickle_close_mark(pickle_machine *m, size_t *first, fsdpck_error *err);

/* pickle_gap.c */
fsdpck_status pickle_do_gap(pickle_machine *m, fsdpck_error *err);
/* APPENDS, or SETITEMS (pairs), of a batch with a gap. */
fsdpck_status pickle_end_gap(pickle_machine *m, bool pairs, fsdpck_error *err);

/* pickle_build.c: containers. `first` is the stack index of the first value taken; the result, or
 * the changed value, is the slot at or below it. */
fsdpck_status pickle_do_tuple(pickle_machine *m, value_kind kind, size_t first, fsdpck_error *err);
fsdpck_status pickle_do_empty(pickle_machine *m, value_kind kind, fsdpck_error *err);
fsdpck_status pickle_do_list(pickle_machine *m, size_t first, fsdpck_error *err);
fsdpck_status pickle_do_dict(pickle_machine *m, size_t first, fsdpck_error *err);
fsdpck_status pickle_do_items(pickle_machine *m, size_t first, fsdpck_error *err); /* APPEND(S) */
fsdpck_status pickle_do_pairs(pickle_machine *m, size_t first, fsdpck_error *err); /* SETITEM(S) */
fsdpck_status pickle_do_members(pickle_machine *m, size_t first, fsdpck_error *err); /* ADDITEMS */
/* After STOP: keys that were set twice. */
fsdpck_status pickle_dedup_dicts(pickle_machine *m, fsdpck_error *err);

/* pickle_call.c */
fsdpck_status pickle_do_reduce(pickle_machine *m, value_call_how how, fsdpck_error *err);
fsdpck_status pickle_do_newobj_ex(pickle_machine *m, fsdpck_error *err);
fsdpck_status pickle_do_persid(pickle_machine *m, fsdpck_error *err);
fsdpck_status pickle_do_build(pickle_machine *m, fsdpck_error *err);
fsdpck_status pickle_do_bytearray(pickle_machine *m, const uint8_t *bytes, size_t nbytes,
                                  fsdpck_error *err);

/* pickle_text.c: opcodes whose argument is a line, and symbols */
fsdpck_status pickle_do_line(pickle_machine *m, uint8_t op, fsdpck_error *err);
fsdpck_status pickle_do_global(pickle_machine *m, fsdpck_error *err);
fsdpck_status pickle_do_stack_global(pickle_machine *m, fsdpck_error *err);
/* A str of UTF-8 (lone surrogates allowed): otherwise PKL-STR. */
fsdpck_status pickle_push_str(pickle_machine *m, const uint8_t *text, size_t nbytes,
                              fsdpck_error *err);
/* A Python 2 str: a str if it is UTF-8, otherwise bytes. */
fsdpck_status pickle_push_python2_str(pickle_machine *m, const uint8_t *text, size_t nbytes,
                                      fsdpck_error *err);

#endif
