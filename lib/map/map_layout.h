/* map_layout.h: the operations of a rule on the layouts of tensors.
 *
 * A tensor under construction is a shape and pieces. A piece is a box of it that is a strided box of
 * one tensor of the checkpoint: index offsets[d] + i in dim d is index start[from] + i * step[d] in
 * the source's dim from = from_dim[d]. Operations cut and move pieces; no element is computed.
 * `add` is a constant for all elements of the rule.
 *
 *     map_layout l;
 *     map_layout_init(&l, &budget);
 *     for each use of a rule:
 *         RETURN_IF(map_layout_begin(&l, m, rule, stacked, err));
 *         RETURN_IF(map_layout_add_source(&l, ...));     // each tensor, in the order of map_match.h
 *         RETURN_IF(map_layout_run(&l, err));
 *         ... map_layout_tensor(&l, i), map_layout_piece(&l, k) ...
 *     map_layout_release(&l);
 */
#ifndef FSDPCK_MAP_MAP_LAYOUT_H
#define FSDPCK_MAP_MAP_LAYOUT_H

#include "map/map_internal.h"
#include "state/dtype.h"

/* Most dims of a tensor that operations apply to. */
#define MAP_DIMS_MAX 8u

typedef struct map_piece {
    uint32_t source;                /* tensor of the checkpoint */
    uint8_t from_dim[MAP_DIMS_MAX]; /* MAP_DIMS_MAX: none, a dim of size 1 that stack made */
    uint64_t offsets[MAP_DIMS_MAX], sizes[MAP_DIMS_MAX], step[MAP_DIMS_MAX];
    uint64_t start[MAP_DIMS_MAX]; /* by the dims of the source */
} map_piece;

typedef struct map_layout_tensor {
    unsigned ndim;
    dtype dtype;
    uint64_t shape[MAP_DIMS_MAX];
    size_t first_piece, count;
} map_layout_tensor;

typedef struct map_layout {
    const tensor_map *m;
    const map_rule *rule;
    /* Tensors are in order of the sources or targets of the rule, and for each of them of the
     * capture that numbers them. */
    uint32_t numbered; /* tensors for each */
    uint32_t inner;    /* with two unstacks: numbers of the second one; else 1 */
    text_buf cut;      /* what narrow removed, as "[100:128]" */
    uint64_t cut_nelems;
    int8_t add;                /* of the rule: 1, -1 or 0 */
    uint64_t head_rows;        /* of a head of the tensor whose rows `rope` reorders; 0: none */
    const map_op *rope;        /* that operation */
    vec tensors, next_tensors; /* map_layout_tensor */
    vec pieces, next_pieces;   /* map_piece */
} map_layout;

void map_layout_init(map_layout *l, budget *owner);
void map_layout_release(map_layout *l);
void map_layout_begin(map_layout *l, const tensor_map *m, const map_rule *rule, uint32_t stacked);
fsdpck_status map_layout_add_source(map_layout *l, uint32_t source, dtype d, unsigned ndim,
                                    const uint64_t *shape, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* BADINPUT (MAP-SHAPE) if the shapes do not fit the rule; USAGE (MAP-VARIABLE). */
fsdpck_status map_layout_run(map_layout *l, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
