/* map_layout_internal.h: what the operations of map_layout.c and map_regroup.c have in common. An
 * operation makes next_tensors and next_pieces of tensors and pieces. */
#ifndef FSDPCK_MAP_MAP_LAYOUT_INTERNAL_H
#define FSDPCK_MAP_MAP_LAYOUT_INTERNAL_H

#include <inttypes.h>
#include <stdio.h>

#include "map/map_layout.h"

/* A catalogue holds no more tensors. */
#define NUMBERED_MAX ((uint64_t)1 << 22)

static inline map_layout_tensor *tensor_at(const map_layout *l, size_t index)
{
    return VEC_AT(&l->tensors, map_layout_tensor, index);
}

static inline const map_piece *piece_at(const map_layout *l, size_t index)
{
    return VEC_AT(&l->pieces, const map_piece, index);
}

static inline void print_shape(const map_layout_tensor *t, text_buf *text)
{
    text_puts(text, "[");
    for (unsigned d = 0; d < t->ndim; d++)
        text_printf(text, "%s%" PRIu64, d == 0 ? "" : ", ", t->shape[d]);
    text_puts(text, "]");
}

static inline fsdpck_status shape_error(const map_op *op, const map_layout_tensor *t,
                                        const char *expected, fsdpck_error *err)
{
    text_buf shape = {.limit_bytes = 300};
    print_shape(t, &shape);
    const fsdpck_status st = FAIL_WITH(
        err, BADINPUT, MAP_SHAPE,
        ("operation in line %u, column %u of the map does not fit the tensor", op->at.line,
         op->at.column),
        (expected, "%s", expected),
        (found, "%s %s", dtype_get(t->dtype)->name, shape.text == NULL ? "" : shape.text));
    text_release(&shape);
    return st;
}

/* A tensor of the next step without pieces; they are added to its end. */
static inline map_layout_tensor *next_tensor(map_layout *l, const map_layout_tensor *like,
                                             fsdpck_error *err)
{
    map_layout_tensor *t = vec_push(&l->next_tensors, err);
    if (t == NULL)
        return NULL;
    *t = *like;
    t->first_piece = l->next_pieces.count;
    t->count = 0;
    return t;
}

static inline map_piece *next_piece(map_layout *l, const map_piece *like, fsdpck_error *err)
{
    map_piece *p = vec_push(&l->next_pieces, err);
    if (p == NULL)
        return NULL;
    *p = *like;
    VEC_AT(&l->next_tensors, map_layout_tensor, l->next_tensors.count - 1)->count++;
    return p;
}

/* Keeps indices [begin, begin + size) of a dim, which then count from 0; false if none is left. */
static inline bool piece_narrow(map_piece *p, unsigned dim, uint64_t begin, uint64_t size)
{
    const uint64_t first = p->offsets[dim] > begin ? p->offsets[dim] : begin;
    const uint64_t end = p->offsets[dim] + p->sizes[dim] < begin + size
                             ? p->offsets[dim] + p->sizes[dim]
                             : begin + size;
    if (first >= end)
        return false;
    if (p->from_dim[dim] < MAP_DIMS_MAX)
        p->start[p->from_dim[dim]] += (first - p->offsets[dim]) * p->step[dim];
    p->offsets[dim] = first - begin;
    p->sizes[dim] = end - first;
    return true;
}

static inline fsdpck_status narrow_all(map_layout *l, const map_layout_tensor *t, unsigned dim,
                                       uint64_t begin, uint64_t size, fsdpck_error *err)
{
    for (size_t k = 0; k < t->count; k++) {
        map_piece p = *piece_at(l, t->first_piece + k);
        if (piece_narrow(&p, dim, begin, size) && next_piece(l, &p, err) == NULL)
            return FSDPCK_LIMIT;
    }
    return FSDPCK_OK;
}

static inline bool same_but_dim(const map_layout_tensor *a, const map_layout_tensor *b,
                                unsigned dim)
{
    if (a->ndim != b->ndim || a->dtype != b->dtype)
        return false;
    for (unsigned d = 0; d < a->ndim; d++)
        if (d != dim && a->shape[d] != b->shape[d])
            return false;
    return true;
}

/* map_regroup.c */
fsdpck_status map_run_regroup(map_layout *l, const map_op *op, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status map_run_narrow(map_layout *l, const map_op *op, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* map_heads.c: before and after an operation. The rows of a head must be those that config.json states;
 * those of `rope` on all rows of a tensor are recorded. BADINPUT (MAP-SHAPE). */
fsdpck_status map_check_heads(map_layout *l, const map_op *op, bool is_done,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
