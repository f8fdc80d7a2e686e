/* mesh.h: how a tensor is cut over ranks, in torch's words: a mesh of ranks and, for each of its
 * dims, a placement. Types only; the arithmetic is lib/layout's.
 *
 * Ranks are numbered row-major over the mesh: the last dim runs fastest, as init_device_mesh does.
 * Placements are read left to right, one a mesh dim:
 *
 *     Replicate()             every coordinate of this mesh dim holds the same
 *     Shard(d)                tensor dim d is chunked over this mesh dim (torch.chunk's rule)
 *     _StridedShard(d, sf)    tensor dim d is chunked over this mesh dim, after mesh dims to the
 *                             right whose sizes multiply to sf (torch 2.5 and newer)
 *     Partial()               a sum that was not done: no layout, always refused
 *
 * A catalogue says with them how its files describe themselves (rank files of DTensors), a target
 * catalogue how its tensors shall be cut.
 */
#ifndef FSDPCK_STATE_MESH_H
#define FSDPCK_STATE_MESH_H

#include <stdbool.h>
#include <stdint.h>

#define MESH_NDIM_MAX    8u
#define MESH_NAME_NBYTES 32u
#define MESH_RANKS_MAX   65534u /* cat_chunk.rank has 16 bits */

typedef struct mesh {
    unsigned ndim; /* 1 to MESH_NDIM_MAX */
    uint64_t sizes[MESH_NDIM_MAX];
    char names[MESH_NDIM_MAX][MESH_NAME_NBYTES]; /* "" where dims have no names */
} mesh;

typedef enum placement_kind {
    PLACEMENT_REPLICATE,
    PLACEMENT_SHARD,
    PLACEMENT_STRIDED_SHARD,
    PLACEMENT_PARTIAL
} placement_kind;

typedef struct placement {
    uint8_t kind;
    uint8_t dim;           /* tensor dim, of the two Shards */
    uint32_t split_factor; /* of STRIDED_SHARD */
} placement;

/* How one tensor is cut: a mesh of the same catalogue, one placement for each of its dims; the rest
 * of the array is zero.
 *
 * A tensor may live on a slice of the mesh (mesh["dp_shard"] of ("dp_shard", "tp"): what
 * torch makes of a parameter that fully_shard cuts and no TP plan names). Its placements are then
 * still those on the whole mesh, with Replicate() on the dims that the slice leaves out, and
 * absent_dims names these; never all. Whoever asks only what a rank holds need not look at it. */
typedef struct cat_spec {
    uint32_t mesh;       /* catalogue.meshes */
    uint8_t absent_dims; /* bit i: mesh dim i; rank files tell it, boxes do not */
    placement placements[MESH_NDIM_MAX];
} cat_spec;

#endif
