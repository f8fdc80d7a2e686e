/* mesh_infer_pattern.h: patterns of boxes, found by mesh_infer.c and explained by
 * mesh_infer_solve.c. */
#ifndef FSDPCK_LAYOUT_MESH_INFER_PATTERN_H
#define FSDPCK_LAYOUT_MESH_INFER_PATTERN_H

#include "layout/mesh_infer.h"

typedef struct pattern_dim {
    unsigned dim;
    uint64_t n;
    size_t begins_at; /* in explain.begins, ascending from 0 */
    size_t count;
} pattern_dim;

/* Boxes that are the product of intervals of each dim: placements make no other form. */
typedef struct mesh_infer_pattern {
    bool is_grid;
    bool is_experts; /* by their name */
    uint64_t ntensors;
    uint64_t nboxes;
    unsigned ndims; /* split dims */
    pattern_dim dims[MESH_NDIM_MAX];
    bool explained; /* on explain.solved */
    placement placements[MESH_NDIM_MAX];
} mesh_infer_pattern;

#endif
