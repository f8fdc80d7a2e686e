/* map_regroup.c: the operations that join the parts of groups (group, ungroup) and that cut padding
 * (narrow). */
#include "map/map_layout_internal.h"

#include "base/checked.h"
#include "base/text.h"
#include "state/box.h"

/* --- group, ungroup --- */

static fsdpck_status value_at(const map_layout *l, const map_op *op, uint32_t i, uint64_t *value,
                              fsdpck_error *err)
{
    return map_get_value(l->m, VEC_AT(&l->m->values, const map_value, op->first_value + i), value,
                         err);
}

/* The indices of part `i` in one group. The parts of all groups together have the proportions of the
 * operation. */
static fsdpck_status part_size(const map_layout *l, const map_op *op, const map_layout_tensor *t,
                               uint32_t i, uint64_t *size, fsdpck_error *err)
{
    uint64_t groups, sum = 0, value;
    char expected[120];
    RETURN_IF(value_at(l, op, 0, &groups, err));
    for (uint32_t k = 1; k < op->count; k++) {
        RETURN_IF(value_at(l, op, k, &value, err));
        if (!checked_add(sum, value, &sum))
            return shape_error(op, t, "proportions with a sum below 2^64", err);
    }
    RETURN_IF(value_at(l, op, 1 + i, &value, err));
    snprintf(expected, sizeof expected,
             "a dim %u of %" PRIu64 " group%s, in proportions with the sum %" PRIu64, op->dim,
             groups, text_plural(groups), sum);
    if (op->dim >= t->ndim || sum == 0 || groups == 0 || t->shape[op->dim] < groups ||
        t->shape[op->dim] % sum != 0 || t->shape[op->dim] / sum * value % groups != 0)
        return shape_error(op, t, expected, err);
    *size = t->shape[op->dim] / sum * value / groups;
    return FSDPCK_OK;
}

/* A part in all groups: `size` indices from `from` on, and again every `step`, become those from `to` on,
 * and again every `to_step`. */
typedef struct part_move {
    uint64_t groups, size, from, step, to, to_step;
} part_move;

/* By pieces, each with the groups that it meets: both may be thousands. */
static fsdpck_status move_part(map_layout *l, const map_layout_tensor *t, unsigned dim,
                               const part_move *m, fsdpck_error *err)
{
    for (size_t k = 0; k < t->count; k++) {
        const map_piece whole = *piece_at(l, t->first_piece + k);
        const uint64_t begin = whole.offsets[dim], end = begin + whole.sizes[dim];
        uint64_t g = begin < m->from + m->size ? 0 : (begin - m->from - m->size) / m->step + 1;
        for (; g < m->groups && m->from + g * m->step < end; g++) {
            map_piece p = whole;
            if (!piece_narrow(&p, dim, m->from + g * m->step, m->size))
                continue;
            p.offsets[dim] += m->to + g * m->to_step;
            if (next_piece(l, &p, err) == NULL)
                return FSDPCK_LIMIT;
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status regroup(map_layout *l, const map_op *op, const map_layout_tensor *t,
                             fsdpck_error *err)
{
    uint64_t groups, in_group = 0;
    RETURN_IF(value_at(l, op, 0, &groups, err));
    const uint64_t group_size = t->shape[op->dim] / groups;
    for (uint32_t i = 0; i + 1 < op->count; i++) {
        uint64_t size = 0;
        RETURN_IF(part_size(l, op, t, i, &size, err));
        const part_move join = {groups, size, in_group, group_size, groups * in_group, size},
                        part = {groups, size, groups * in_group, size, in_group, group_size};
        if (size > 0)
            RETURN_IF(move_part(l, t, op->dim, op->kind == MAP_OP_UNGROUP ? &join : &part, err));
        in_group += size;
    }
    return FSDPCK_OK;
}

/* ungroup: the first parts of all groups, in the order of the groups, then the second parts, and so on.
 * group is its inverse, with the same arguments. */
fsdpck_status map_run_regroup(map_layout *l, const map_op *op, fsdpck_error *err)
{
    for (size_t i = 0; i < l->tensors.count; i++) {
        const map_layout_tensor *t = tensor_at(l, i);
        uint64_t size;
        RETURN_IF(part_size(l, op, t, 0, &size, err));
        if (next_tensor(l, t, err) == NULL)
            return FSDPCK_LIMIT;
        if (box_nelems(t->shape, t->ndim) > 0)
            RETURN_IF(regroup(l, op, t, err));
    }
    return FSDPCK_OK;
}

/* --- narrow --- */

static void record_cut(map_layout *l, unsigned dim, uint64_t begin, uint64_t end)
{
    text_puts(&l->cut, "[");
    for (unsigned d = 0; d < dim; d++)
        text_puts(&l->cut, ":, ");
    text_printf(&l->cut, "%" PRIu64 ":%" PRIu64 "]", begin, end);
}

/* Keeps the first indices of a dim. It has no inverse: nothing records the removed part. */
fsdpck_status map_run_narrow(map_layout *l, const map_op *op, fsdpck_error *err)
{
    uint64_t size;
    bool recorded = false;
    RETURN_IF(value_at(l, op, 0, &size, err));
    for (size_t i = 0; i < l->tensors.count; i++) {
        const map_layout_tensor *from = tensor_at(l, i);
        char expected[80];
        snprintf(expected, sizeof expected, "a dim %u of %" PRIu64 " or more", op->dim, size);
        if (op->dim >= from->ndim || from->shape[op->dim] < size)
            return shape_error(op, from, expected, err);
        map_layout_tensor rest = *from;
        rest.shape[op->dim] -= size;
        const uint64_t nelems = box_nelems(rest.shape, rest.ndim);
        if (nelems > 0 && !recorded)
            record_cut(l, op->dim, size, from->shape[op->dim]);
        recorded = recorded || nelems > 0;
        l->cut_nelems += nelems;
        map_layout_tensor *t = next_tensor(l, from, err);
        if (t == NULL)
            return FSDPCK_LIMIT;
        t->shape[op->dim] = size;
        RETURN_IF(narrow_all(l, from, op->dim, 0, size, err));
    }
    return text_check(&l->cut, err);
}
