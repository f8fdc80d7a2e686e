/* shard_box.h: the box of a tensor on a rank, from a mesh and placements.
 *
 *     uint64_t coord[MESH_NDIM_MAX], offsets[NDIM_MAX], sizes[NDIM_MAX];
 *     RETURN_IF(mesh_check(&m, err));          // once, for a mesh from a file
 *     mesh_coord(&m, rank, coord);
 *     RETURN_IF(shard_box(&m, placements, ndim, shape, coord, SHARD_PHYSICAL, offsets, sizes, err));
 *
 * Each tensor dim is independent: the list of its indices, 0 to n-1, is split once for each mesh
 * dim that shards it, and the rest belongs to the rank; the box is the product over the dims. Two
 * rules define the splits (torch 2.5 to 2.15):
 *
 *   recorded  left to right, as torch computes the offsets that it writes
 *             (tensor/_utils.py, _compute_local_shape_and_global_offset): Shard(d) takes the
 *             coord-th chunk of the list; _StridedShard(d, sf) splits the list into sf chunks, each
 *             of them into as many as the mesh dim has, and takes the coord-th of each, joined.
 *   physical  in the order in which the tensor was really sharded: TP first, then FSDP inside each
 *             TP shard (fsdp/_fully_shard/_fsdp_param.py). A _StridedShard's split_factor is the
 *             number of parts that mesh dims to its right had made before; the order is decoded
 *             from it (tensor/_dtensor_spec.py). Then every split takes the coord-th chunk
 *             (torch_chunk.h).
 *
 * Both rules agree if n divides evenly, and for most other n. If they differ, torch's own record is
 * wrong about the data (finding DCP-BOX; torch 2.10 to 2.15; (n, FSDP, TP) = (7, 3, 2), (9, 4, 2),
 * (11, 3, 3), ...). Without a _StridedShard they are identical.
 *
 * A physical shard is always a run of indices. The recorded rule may leave gaps ([Shard(0),
 * _StridedShard(0, 2)] of 8 on (2, 2): 0 and 2). Offset and size cannot express that: it is an
 * error here, never a guess; shard_indices below returns such a list. An empty shard is at the end
 * of its dim, as torch records it.
 *
 * Dims d > 0 that do not divide evenly: torch's FSDP refuses them; DCP, safetensors and rank files
 * can contain them and torch's distribute_tensor makes them. Hence this code accepts them; layout.h
 * refuses them if the target is a model of FSDP.
 *
 * Nothing here allocates, and time does not depend on sizes: 30 to 150 ns per box, for any n and
 * split factor.
 */
#ifndef FSDPCK_LAYOUT_SHARD_BOX_H
#define FSDPCK_LAYOUT_SHARD_BOX_H

#include "base/status.h"
#include "state/box.h"
#include "state/mesh.h"

typedef enum shard_rule { SHARD_PHYSICAL, SHARD_RECORDED } shard_rule;

/* Offsets and sizes, ndim each, of the box of the rank at `coord`. Placements and coordinates may
 * come from a file. UNSUPPORTED: LAYOUT-PARTIAL (a Partial), LAYOUT-ORDER (placements without a
 * valid order; physical rule only), LAYOUT-RUN (the rank's indices are not a run; recorded rule
 * only). BADINPUT: LAYOUT-DIM (a dim that the tensor lacks), LAYOUT-COORD (outside the mesh),
 * LAYOUT-SPLIT (split factor 0), LAYOUT-KIND (unknown placement_kind). */
fsdpck_status shard_box(const mesh *m, const placement *p, unsigned ndim, const uint64_t *shape,
                        const uint64_t *coord, shard_rule rule, uint64_t *offsets, uint64_t *sizes,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The mesh dims that shard tensor dim `dim`, in the order of sharding; *count of them. False if the
 * placements cannot be decoded. As in torch: right to left, each mesh dim is placed where the sizes
 * of those before it multiply to its split factor (1 for Shard). */
bool shard_cut_order(const mesh *m, const placement *p, unsigned dim, unsigned *order,
                     unsigned *count);

/* The reverse, for writing: gives every Shard and _StridedShard of p the form for the given order:
 * _StridedShard(d, sf) if mesh dims further right shard dim d before it, into sf parts, else
 * Shard(d). `order` lists all mesh dims of m in the order of sharding. */
void placements_set_strided(const mesh *m, const unsigned *order, placement *p);

/* The indices of one tensor dim on a rank by the recorded rule, in the order of its local tensor
 * (ascending), including gaps:
 *
 *     shard_indices l;
 *     shard_indices_init(&l, &m, p, dim, n, coord);       // checked before by shard_box
 *     for (uint64_t j = 0; j < l.count; j++)
 *         use(shard_indices_at(&l, j));
 *
 * torch records l.count as the size and shard_indices_at(&l, 0) as the offset, or n if the size is
 * 0. */
typedef struct shard_split {
    uint64_t full_step;   /* elements of the previous list per full chunk of the sf */
    uint64_t full_begin;  /* of the part inside each of these */
    uint64_t full_nelems; /* of the part there */
    uint64_t full_count;  /* chunks that are full */
    uint64_t last_begin;  /* of the part inside the last chunk, which is shorter */
} shard_split;

typedef struct shard_indices {
    uint64_t count;
    unsigned ncuts;
    shard_split cuts[MESH_NDIM_MAX];
} shard_indices;

void shard_indices_init(shard_indices *l, const mesh *m, const placement *p, unsigned dim,
                        uint64_t n, const uint64_t *coord);
/* j < l->count */
uint64_t shard_indices_at(const shard_indices *l, uint64_t j);
/* Whether the indices are consecutive. */
bool shard_indices_is_run(const shard_indices *l);

/* Number of distinct boxes of a tensor, counting empty ones separately: the product of the mesh
 * dims that shard it; UINT64_MAX on overflow. */
uint64_t piece_count(const mesh *m, const placement *p);

/* Number of ranks with elements of a nonempty tensor; the others have an empty shard. By the
 * physical rule, without a loop over the ranks: all but two parts of one split are alike. The
 * placements must have passed shard_box. */
uint64_t shard_nonempty_ranks(const mesh *m, const placement *p, unsigned ndim,
                              const uint64_t *shape);

/* Whether the rank at `coord` is the lowest with its box: its coordinates along replicated mesh
 * dims are 0. (Empty boxes of several ranks are not merged.) */
bool shard_is_first_holder(const mesh *m, const placement *p, const uint64_t *coord);

/* The ranks with the same box as the rank at `coord`, ascending:
 *
 *     shard_holders h;
 *     for (shard_holders_begin(&h, m, p, coord); shard_holders_next(&h, &rank);) ...
 */
typedef struct shard_holders {
    const mesh *m;
    const placement *p;
    uint64_t coord[MESH_NDIM_MAX];
    bool done;
} shard_holders;

void shard_holders_begin(shard_holders *h, const mesh *m, const placement *p,
                         const uint64_t *coord);
bool shard_holders_next(shard_holders *h, uint64_t *rank);

#endif
