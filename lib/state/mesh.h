/* mesh.h: sharding of a tensor over ranks, in torch's terms: a mesh of ranks and, for each of its
 * dims, a placement. The arithmetic is in lib/layout.
 *
 * Ranks are numbered row-major over the mesh: the last dim varies fastest, as in init_device_mesh.
 * Placements are listed left to right, one per mesh dim:
 *
 *     Replicate()             all coordinates of this mesh dim hold the same data
 *     Shard(d)                tensor dim d is chunked over this mesh dim (torch.chunk's rule)
 *     _StridedShard(d, sf)    tensor dim d is chunked over this mesh dim, after mesh dims to the
 *                             right whose sizes multiply to sf (torch 2.5 and newer)
 *     Partial()               an unreduced sum: not a layout, always refused
 *
 * In a source catalogue they are the placements recorded in the files (rank files of DTensors), in
 * a target catalogue the requested ones.
 */
#ifndef FSDPCK_STATE_MESH_H
#define FSDPCK_STATE_MESH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MESH_NDIM_MAX    8u
#define MESH_NAME_NBYTES 32u
#define MESH_RANKS_MAX   65534u /* cat_chunk.rank has 16 bits */

typedef struct mesh {
    unsigned ndim; /* 1 to MESH_NDIM_MAX */
    uint64_t sizes[MESH_NDIM_MAX];
    char names[MESH_NDIM_MAX][MESH_NAME_NBYTES]; /* "" if dims have no names */
} mesh;

/* Same sizes and names. */
static inline bool mesh_equal(const mesh *a, const mesh *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (unsigned i = 0; i < a->ndim; i++)
        if (a->sizes[i] != b->sizes[i] || strcmp(a->names[i], b->names[i]) != 0)
            return false;
    return true;
}

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

/* Sharding of one tensor: a mesh of the same catalogue, one placement for each of its dims; the
 * rest of the array is zero.
 *
 * A tensor may use a slice of the mesh: mesh["dp_shard"] of ("dp_shard", "tp"), as torch does for a
 * parameter that fully_shard shards and no TP plan names. Its placements still refer to the whole
 * mesh, with Replicate() on the dims outside the slice. absent_dims has a bit for each of those,
 * never for all. The box of a rank does not depend on absent_dims. */
typedef struct cat_spec {
    uint32_t mesh;       /* catalogue.meshes */
    uint8_t absent_dims; /* bit i: mesh dim i; recorded in rank files, but not in boxes */
    placement placements[MESH_NDIM_MAX];
} cat_spec;

#endif
