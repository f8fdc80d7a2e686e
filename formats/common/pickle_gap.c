/* pickle_gap.c: parts of a pickle that the caller has read itself. */
#include "formats/common/pickle_internal.h"

/* Stores the memo entries of a gap that are fetched later. */
static fsdpck_status store_entries(pickle_machine *m, size_t gap, uint64_t first, uint64_t count,
                                   fsdpck_error *err)
{
    uint64_t at = first;
    while (at < first + count) {
        uint64_t marked = pickle_memo_marked_from(&m->memo, at);
        const uint64_t left = 64 - at % 64;
        for (uint64_t k = 0; marked != 0 && at + k < first + count; k++, marked >>= 1) {
            value v;
            if ((marked & 1) == 0)
                continue;
            RETURN_IF(m->hooks->on_gap_memo(m->hooks->ctx, m->pool, gap, at + k - first, &v, err));
            if (value_has_cells(v))
                return pickle_refuse_gap(m, err);
            *pickle_memo_at(&m->memo, at + k) = v;
        }
        at += left;
    }
    return FSDPCK_OK;
}

/* The items of a batch enter their list or dict. A hook takes all items of a list or none: beside a
 * gap, it must take all. */
static fsdpck_status take_batch(pickle_machine *m, bool pairs, size_t first, fsdpck_error *err)
{
    if (pairs)
        return pickle_do_pairs(m, first, err);
    RETURN_IF(pickle_do_items(m, first, err));
    return value_node_of(m->pool, pickle_top(m, 0)->v)->count == 0 ? FSDPCK_OK
                                                                   : pickle_refuse_gap(m, err);
}

fsdpck_status pickle_end_gap(pickle_machine *m, bool pairs, fsdpck_error *err)
{
    size_t first;
    if (m->gap_pairs != pairs)
        return pickle_refuse_gap(m, err);
    m->gap_marks = 0;
    RETURN_IF(pickle_close_mark(m, &first, err));
    return take_batch(m, pairs, first, err);
}

/* Gives the items before the gap to their container, and the gap after them. */
static fsdpck_status fill_container(pickle_machine *m, const pickle_gap *gap, size_t first,
                                    fsdpck_error *err)
{
    const value_kind kind = gap->pairs ? VALUE_DICT : VALUE_LIST;
    uint64_t note = 0;

    if (first <= m->fence || value_kind_inline(pickle_slot_at(m, first - 1)->v) != kind)
        return pickle_refuse_gap(m, err);
    RETURN_IF(take_batch(m, gap->pairs, first, err));
    const value container = pickle_slot_at(m, first - 1)->v;
    if (!gap->pairs)
        note = value_node_of(m->pool, container)->note;
    RETURN_IF(m->hooks->on_gap(m->hooks->ctx, m->pool, &m->memo, m->gap, m->memoized, &note, err));
    if (!gap->pairs)
        value_node_of(m->pool, container)->note = note;
    return FSDPCK_OK;
}

fsdpck_status pickle_do_gap(pickle_machine *m, fsdpck_error *err)
{
    size_t first;

    if (m->in->gaps == NULL || m->gap >= m->in->gaps->gaps.count || m->hooks->on_gap == NULL ||
        m->hooks->on_gap_memo == NULL)
        return pickle_refuse_gap(m, err);
    const pickle_gap *gap = VEC_AT(&m->in->gaps->gaps, const pickle_gap, m->gap);
    if (m->gap_marks != 0 && (m->gap_marks != m->marks.count || m->gap_pairs != gap->pairs))
        return pickle_refuse_gap(m, err);
    m->gap_marks = 0;
    RETURN_IF(pickle_close_mark(m, &first, err));
    RETURN_IF(fill_container(m, gap, first, err));
    /* The mark stays open for the rest of the batch. */
    RETURN_IF(vec_add(&m->marks, &(size_t){m->stack.count}, err));
    m->fence = m->stack.count;
    m->gap_marks = m->marks.count;
    m->gap_pairs = gap->pairs;
    RETURN_IF(store_entries(m, m->gap, m->memoized, gap->memoized, err));
    m->memoized += gap->memoized;
    m->wanted = pickle_memo_marked_from(&m->memo, m->memoized);
    m->gap++;
    return FSDPCK_OK;
}
