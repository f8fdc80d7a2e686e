#include "map/map_layout_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/text.h"
#include "state/box.h"

void map_layout_init(map_layout *l, budget *owner)
{
    *l = (map_layout){.tensors = VEC_OF(map_layout_tensor, owner),
                      .next_tensors = VEC_OF(map_layout_tensor, owner),
                      .pieces = VEC_OF(map_piece, owner),
                      .next_pieces = VEC_OF(map_piece, owner)};
}

void map_layout_release(map_layout *l)
{
    vec_release(&l->tensors);
    vec_release(&l->next_tensors);
    vec_release(&l->pieces);
    vec_release(&l->next_pieces);
    text_release(&l->cut);
}

void map_layout_begin(map_layout *l, const tensor_map *m, const map_rule *rule, uint32_t stacked)
{
    l->m = m;
    l->rule = rule;
    l->numbered = stacked;
    l->inner = 1;
    l->cut.nbytes = 0;
    l->cut_nelems = 0;
    l->add = 0;
    l->head_rows = 0;
    l->rope = NULL;
    l->tensors.count = l->next_tensors.count = 0;
    l->pieces.count = l->next_pieces.count = 0;
}

fsdpck_status map_layout_add_source(map_layout *l, uint32_t source, dtype d, unsigned ndim,
                                    const uint64_t *shape, fsdpck_error *err)
{
    if (ndim > MAP_DIMS_MAX)
        return FAIL(err, UNSUPPORTED, NONE,
                    "map has an operation on a tensor of %u dims; at most %u are supported", ndim,
                    MAP_DIMS_MAX);
    map_layout_tensor *t = vec_push(&l->tensors, err);
    map_piece *p = t == NULL ? NULL : vec_push(&l->pieces, err);
    if (p == NULL)
        return FSDPCK_LIMIT;
    *t = (map_layout_tensor){
        .ndim = ndim, .dtype = d, .first_piece = l->pieces.count - 1, .count = 1};
    *p = (map_piece){.source = source};
    for (unsigned i = 0; i < ndim; i++) {
        t->shape[i] = p->sizes[i] = shape[i];
        p->step[i] = 1;
        p->from_dim[i] = (uint8_t)i;
    }
    return FSDPCK_OK;
}

/* --- the operations --- */

static fsdpck_status run_stack(map_layout *l, const map_op *op, fsdpck_error *err)
{
    for (size_t i = 0; i < l->tensors.count; i++) {
        const map_layout_tensor *from = tensor_at(l, i);
        const uint64_t index = i % l->numbered;
        if (from->ndim == MAP_DIMS_MAX)
            return shape_error(op, from, "at most 7 dims", err);
        if (!same_but_dim(from, tensor_at(l, i - index), MAP_DIMS_MAX))
            return shape_error(op, from, "the same dtype and shape for all tensors of the stack",
                               err);
        map_layout_tensor *t = index == 0 ? next_tensor(l, from, err) : NULL;
        if (index == 0 && t == NULL)
            return FSDPCK_LIMIT;
        if (t != NULL) {
            memmove(t->shape + 1, t->shape, sizeof t->shape - sizeof *t->shape);
            t->shape[0] = l->numbered;
            t->ndim++;
        }
        for (size_t k = 0; k < from->count; k++) {
            map_piece *p = next_piece(l, piece_at(l, from->first_piece + k), err);
            if (p == NULL)
                return FSDPCK_LIMIT;
            memmove(p->from_dim + 1, p->from_dim, MAP_DIMS_MAX - 1);
            memmove(p->offsets + 1, p->offsets, (MAP_DIMS_MAX - 1) * sizeof *p->offsets);
            memmove(p->sizes + 1, p->sizes, (MAP_DIMS_MAX - 1) * sizeof *p->sizes);
            memmove(p->step + 1, p->step, (MAP_DIMS_MAX - 1) * sizeof *p->step);
            p->from_dim[0] = MAP_DIMS_MAX;
            p->offsets[0] = index;
            p->sizes[0] = p->step[0] = 1;
        }
    }
    l->numbered = 1;
    return FSDPCK_OK;
}

/* Removes the first dim, of size 1, of the pieces of the last tensor. */
static void remove_first_dim(map_layout *l)
{
    map_layout_tensor *t = VEC_AT(&l->next_tensors, map_layout_tensor, l->next_tensors.count - 1);
    memmove(t->shape, t->shape + 1, sizeof t->shape - sizeof *t->shape);
    t->ndim--;
    for (size_t k = 0; k < t->count; k++) {
        map_piece *p = VEC_AT(&l->next_pieces, map_piece, t->first_piece + k);
        memmove(p->from_dim, p->from_dim + 1, MAP_DIMS_MAX - 1);
        memmove(p->offsets, p->offsets + 1, (MAP_DIMS_MAX - 1) * sizeof *p->offsets);
        memmove(p->sizes, p->sizes + 1, (MAP_DIMS_MAX - 1) * sizeof *p->sizes);
        memmove(p->step, p->step + 1, (MAP_DIMS_MAX - 1) * sizeof *p->step);
    }
}

static fsdpck_status run_unstack(map_layout *l, const map_op *op, fsdpck_error *err)
{
    const map_layout_tensor *first = tensor_at(l, 0);
    const uint64_t count = first->ndim == 0 ? 0 : first->shape[0];
    if (count == 0 || count > NUMBERED_MAX / l->numbered)
        return shape_error(op, first, "a first dim of 1 to 4194304", err);
    for (size_t i = 0; i < l->tensors.count; i++) {
        const map_layout_tensor *from = tensor_at(l, i);
        if (from->ndim == 0 || from->shape[0] != count)
            return shape_error(op, from, "the first dim of the other tensors", err);
        for (uint64_t n = 0; n < count; n++) {
            if (next_tensor(l, from, err) == NULL)
                return FSDPCK_LIMIT;
            RETURN_IF(narrow_all(l, from, 0, n, 1, err));
            remove_first_dim(l);
        }
    }
    /* Tensors are in order of the first unstacked number, then of the second. */
    l->inner = op->capture == l->rule->unstacked_inner ? (uint32_t)count : 1;
    l->numbered *= (uint32_t)count;
    return FSDPCK_OK;
}

/* Whether the sources of one number have the proportions of the operation, as far as these are known. */
static fsdpck_status check_proportions(const map_layout *l, const map_op *op, uint32_t number,
                                       fsdpck_error *err)
{
    uint64_t first = 0, unit = 0;
    for (uint32_t i = 0; i < op->count; i++)
        if (!map_value_is_set(l->m, VEC_AT(&l->m->values, const map_value, op->first_value + i)))
            return FSDPCK_OK;
    for (uint32_t i = 0; i < op->count; i++) {
        const map_layout_tensor *t = tensor_at(l, (size_t)i * l->numbered + number);
        uint64_t value, size;
        RETURN_IF(map_get_value(l->m, VEC_AT(&l->m->values, const map_value, op->first_value + i),
                                &value, err));
        if (i == 0) {
            first = value;
            unit = t->shape[op->dim] / value;
        }
        char expected[100];
        snprintf(expected, sizeof expected,
                 "a size of dim %u that is %" PRIu64 "/%" PRIu64 " of its size in the first source",
                 op->dim, value, first);
        if (!checked_mul(value, unit, &size) || size != t->shape[op->dim])
            return shape_error(op, t, expected, err);
    }
    return FSDPCK_OK;
}

static fsdpck_status run_concat(map_layout *l, const map_op *op, fsdpck_error *err)
{
    const size_t sources = l->tensors.count / l->numbered;
    for (uint32_t n = 0; n < l->numbered; n++) {
        const map_layout_tensor *first = tensor_at(l, n);
        map_layout_tensor *t = next_tensor(l, first, err);
        if (t == NULL)
            return FSDPCK_LIMIT;
        if (op->dim >= first->ndim)
            return shape_error(op, first, "more dims", err);
        t->shape[op->dim] = 0;
        for (size_t s = 0; s < sources; s++) {
            const map_layout_tensor *from = tensor_at(l, s * l->numbered + n);
            if (!same_but_dim(from, first, op->dim))
                return shape_error(op, from, "the dtype and the other dims of the first source",
                                   err);
            for (size_t k = 0; k < from->count; k++) {
                map_piece *p = next_piece(l, piece_at(l, from->first_piece + k), err);
                if (p == NULL)
                    return FSDPCK_LIMIT;
                p->offsets[op->dim] += t->shape[op->dim];
            }
            if (!checked_add(t->shape[op->dim], from->shape[op->dim], &t->shape[op->dim]))
                return shape_error(op, from, "a sum of the dims below 2^64", err);
        }
        RETURN_IF(check_proportions(l, op, n, err));
    }
    return FSDPCK_OK;
}

/* The size of the unit of the proportions: the dim is their sum times as long. */
static fsdpck_status find_unit(const map_layout *l, const map_op *op, const map_layout_tensor *t,
                               uint64_t *unit, fsdpck_error *err)
{
    uint64_t sum = op->count == 0 ? l->rule->ntargets : 0;
    for (uint32_t i = 0; i < op->count; i++) {
        uint64_t value;
        const map_value *v = VEC_AT(&l->m->values, const map_value, op->first_value + i);
        RETURN_IF(map_get_value(l->m, v, &value, err));
        if (!checked_add(sum, value, &sum))
            return shape_error(op, t, "proportions with a sum below 2^64", err);
    }
    char expected[80];
    snprintf(expected, sizeof expected, "a dim %u that is a multiple of %" PRIu64, op->dim, sum);
    if (op->dim >= t->ndim || sum == 0 || t->shape[op->dim] % sum != 0)
        return shape_error(op, t, expected, err);
    *unit = t->shape[op->dim] / sum;
    return FSDPCK_OK;
}

static fsdpck_status run_split(map_layout *l, const map_op *op, fsdpck_error *err)
{
    /* By target, then by number: the parts of all tensors of one number are not next to each other. */
    for (uint32_t target = 0; target < l->rule->ntargets; target++) {
        for (uint32_t n = 0; n < l->numbered; n++) {
            const map_layout_tensor *from = tensor_at(l, n);
            uint64_t unit = 0, begin = 0, size = 0;
            RETURN_IF(find_unit(l, op, from, &unit, err));
            for (uint32_t i = 0; i <= target; i++) {
                uint64_t value = 1;
                begin += size;
                if (op->count > 0)
                    RETURN_IF(map_get_value(
                        l->m, VEC_AT(&l->m->values, const map_value, op->first_value + i), &value,
                        err));
                size = value * unit;
            }
            map_layout_tensor *t = next_tensor(l, from, err);
            if (t == NULL)
                return FSDPCK_LIMIT;
            t->shape[op->dim] = size;
            RETURN_IF(narrow_all(l, from, op->dim, begin, size, err));
        }
    }
    return FSDPCK_OK;
}

/* The rows first, first + 2, ... of a half become rows of `to` on: 0 and 1 of each pair. */
static fsdpck_status take_half(map_layout *l, const map_piece *from, uint64_t first, uint64_t count,
                               uint64_t to, fsdpck_error *err)
{
    const uint64_t end = from->offsets[0] + from->sizes[0];
    uint64_t begin = 0;
    if (from->offsets[0] > first)
        begin = (from->offsets[0] - first + 1) / 2;
    if (first >= end || begin >= count)
        return FSDPCK_OK;
    const uint64_t most = (end - first + 1) / 2;
    if (begin >= most)
        return FSDPCK_OK;
    map_piece *p = next_piece(l, from, err);
    if (p == NULL)
        return FSDPCK_LIMIT;
    if (p->from_dim[0] < MAP_DIMS_MAX)
        p->start[p->from_dim[0]] += (first + 2 * begin - from->offsets[0]) * p->step[0];
    p->offsets[0] = to + begin;
    p->sizes[0] = (most < count ? most : count) - begin;
    p->step[0] *= 2;
    return FSDPCK_OK;
}

/* Half of the rows of a head of a tensor. */
static fsdpck_status find_half(const map_layout *l, const map_op *op, const map_layout_tensor *t,
                               uint64_t *heads, uint64_t *half, fsdpck_error *err)
{
    char expected[80];
    RETURN_IF(
        map_get_value(l->m, VEC_AT(&l->m->values, const map_value, op->first_value), heads, err));
    snprintf(expected, sizeof expected, "rows for %" PRIu64 " head%s of even size", *heads,
             text_plural(*heads));
    if (t->ndim == 0 || *heads == 0 || t->shape[0] == 0 || *heads > t->shape[0] ||
        t->shape[0] % *heads != 0 || t->shape[0] / *heads % 2 != 0)
        return shape_error(op, t, expected, err);
    *half = t->shape[0] / *heads / 2;
    return FSDPCK_OK;
}

/* In each head, row 2 i + r becomes row r * half + i. */
static fsdpck_status run_rope(map_layout *l, const map_op *op, fsdpck_error *err)
{
    for (size_t i = 0; i < l->tensors.count; i++) {
        const map_layout_tensor *from = tensor_at(l, i);
        uint64_t heads, half;
        RETURN_IF(find_half(l, op, from, &heads, &half, err));
        if (next_tensor(l, from, err) == NULL)
            return FSDPCK_LIMIT;
        if (box_nelems(from->shape, from->ndim) == 0)
            continue;
        const uint64_t rows = 2 * half;
        for (uint64_t h = 0; h < 2 * heads; h++)
            for (size_t k = 0; k < from->count; k++)
                RETURN_IF(take_half(l, piece_at(l, from->first_piece + k), h / 2 * rows + h % 2,
                                    half, h / 2 * rows + h % 2 * half, err));
    }
    return FSDPCK_OK;
}

/* Rows `first` and `first` + half of a piece, or one of them, become rows `to` and `to` + 1. */
static fsdpck_status take_pair(map_layout *l, const map_piece *from, uint64_t first, uint64_t half,
                               uint64_t to, fsdpck_error *err)
{
    const uint64_t end = from->offsets[0] + from->sizes[0];
    const bool has_first = first >= from->offsets[0] && first < end;
    const bool has_second = first + half >= from->offsets[0] && first + half < end;
    if (!has_first && !has_second)
        return FSDPCK_OK;
    map_piece *p = next_piece(l, from, err);
    if (p == NULL)
        return FSDPCK_LIMIT;
    const uint64_t begin = has_first ? first : first + half;
    if (p->from_dim[0] < MAP_DIMS_MAX)
        p->start[p->from_dim[0]] += (begin - from->offsets[0]) * p->step[0];
    p->offsets[0] = has_first ? to : to + 1;
    p->sizes[0] = has_first && has_second ? 2 : 1;
    p->step[0] *= half;
    return FSDPCK_OK;
}

/* In each head, row r * half + i becomes row 2 i + r. The rows of a piece have one distance in the
 * source, so each pair is a piece. */
static fsdpck_status run_unrope(map_layout *l, const map_op *op, fsdpck_error *err)
{
    for (size_t i = 0; i < l->tensors.count; i++) {
        const map_layout_tensor *from = tensor_at(l, i);
        uint64_t heads, half;
        RETURN_IF(find_half(l, op, from, &heads, &half, err));
        if (next_tensor(l, from, err) == NULL)
            return FSDPCK_LIMIT;
        if (box_nelems(from->shape, from->ndim) == 0)
            continue;
        for (uint64_t pair = 0; pair < heads * half; pair++)
            for (size_t k = 0; k < from->count; k++)
                RETURN_IF(take_pair(l, piece_at(l, from->first_piece + k),
                                    pair / half * 2 * half + pair % half, half, 2 * pair, err));
    }
    return FSDPCK_OK;
}

static void swap_dims(uint64_t *by_dim, const map_op *op)
{
    const uint64_t value = by_dim[op->dim];
    by_dim[op->dim] = by_dim[op->other_dim];
    by_dim[op->other_dim] = value;
}

static fsdpck_status run_transpose(map_layout *l, const map_op *op, fsdpck_error *err)
{
    for (size_t i = 0; i < l->tensors.count; i++) {
        const map_layout_tensor *from = tensor_at(l, i);
        if (op->dim >= from->ndim || op->other_dim >= from->ndim)
            return shape_error(op, from, "more dims", err);
        map_layout_tensor *t = next_tensor(l, from, err);
        if (t == NULL)
            return FSDPCK_LIMIT;
        swap_dims(t->shape, op);
        for (size_t k = 0; k < from->count; k++) {
            map_piece *p = next_piece(l, piece_at(l, from->first_piece + k), err);
            if (p == NULL)
                return FSDPCK_LIMIT;
            const uint8_t dim = p->from_dim[op->dim];
            p->from_dim[op->dim] = p->from_dim[op->other_dim];
            p->from_dim[op->other_dim] = dim;
            swap_dims(p->offsets, op);
            swap_dims(p->sizes, op);
            swap_dims(p->step, op);
        }
    }
    return FSDPCK_OK;
}

static void swap_steps(map_layout *l)
{
    const vec tensors = l->tensors, pieces = l->pieces;
    l->tensors = l->next_tensors;
    l->pieces = l->next_pieces;
    l->next_tensors = tensors;
    l->next_pieces = pieces;
    l->next_tensors.count = l->next_pieces.count = 0;
}

/* The pieces remain. */
static fsdpck_status check_add(map_layout *l, const map_op *op, fsdpck_error *err)
{
    l->add = map_added(l->m, op);
    for (size_t i = 0; l->add != 0 && i < l->tensors.count; i++)
        if (!dtype_can_add(tensor_at(l, i)->dtype))
            return shape_error(op, tensor_at(l, i), "float64, float32, float16 or bfloat16", err);
    return FSDPCK_OK;
}

fsdpck_status map_layout_run(map_layout *l, fsdpck_error *err)
{
    static fsdpck_status (*const run[])(map_layout *, const map_op *, fsdpck_error *) = {
        [MAP_OP_STACK] = run_stack,       [MAP_OP_UNSTACK] = run_unstack,
        [MAP_OP_CONCAT] = run_concat,     [MAP_OP_SPLIT] = run_split,
        [MAP_OP_ROPE] = run_rope,         [MAP_OP_TRANSPOSE] = run_transpose,
        [MAP_OP_GROUP] = map_run_regroup, [MAP_OP_UNGROUP] = map_run_regroup,
        [MAP_OP_NARROW] = map_run_narrow, [MAP_OP_UNROPE] = run_unrope,
    };
    for (uint32_t i = 0; i < l->rule->nops; i++) {
        const map_op *op = VEC_AT(&l->m->ops, const map_op, l->rule->first_op + i);
        if (op->kind == MAP_OP_ADD) {
            RETURN_IF(check_add(l, op, err));
            continue;
        }
        RETURN_IF(map_check_heads(l, op, false, err));
        RETURN_IF(run[op->kind](l, op, err));
        swap_steps(l);
        RETURN_IF(map_check_heads(l, op, true, err));
    }
    return FSDPCK_OK;
}
