/* shard_box.h: which part of a tensor a rank holds, from a mesh and placements.
 *
 *     uint64_t coord[MESH_NDIM_MAX], offsets[NDIM_MAX], sizes[NDIM_MAX];
 *     RETURN_IF(mesh_check(&m, err));          // once, where the mesh comes from a file
 *     mesh_coord(&m, rank, coord);
 *     RETURN_IF(shard_box(&m, placements, ndim, shape, coord, SHARD_PHYSICAL, offsets, sizes, err));
 *
 * Each tensor dim is on its own: a list of its indices, 0 to n-1, is cut once for each mesh dim
 * that shards it, and what is left is what the rank holds; the box is the product over the dims.
 * Two rules say how the cuts are made (torch 2.5 to 2.15):
 *
 *   recorded  left to right, as torch computes the offsets that it writes
 *             (tensor/_utils.py, _compute_local_shape_and_global_offset): Shard(d) takes the
 *             coord-th chunk of the list; _StridedShard(d, sf) cuts the list into sf chunks, each of
 *             them into as many as the mesh dim has, and takes the coord-th of each, joined.
 *   physical  in the order in which the tensor was really cut: TP first, then FSDP inside each TP
 *             piece (fsdp/_fully_shard/_fsdp_param.py). A _StridedShard's split_factor tells how
 *             many pieces mesh dims to its right had made before it was applied; from that the order
 *             is decoded (tensor/_dtensor_spec.py), and then every cut takes the coord-th chunk
 *             (torch_chunk.h).
 *
 * Both cut a dim of n into pieces that are the same where n divides evenly, and for most n that do
 * not; where they differ torch's own record is wrong about the data (defect D1; torch 2.10 to 2.15;
 * (n, FSDP, TP) = (7, 3, 2), (9, 4, 2), (11, 3, 3), ...). Without a _StridedShard they are one.
 *
 * A physical piece is always a run of indices. The recorded rule may leave gaps ([Shard(0),
 * _StridedShard(0, 2)] of 8 on (2, 2): 0 and 2). Offset and size cannot express that: it is an error
 * here, never a guess; shard_indices below shows such a list as it is. An empty piece lies at the end
 * of its dim, as torch records it.
 *
 * Dims d > 0 that do not divide evenly: torch's FSDP refuses them; DCP, safetensors and rank files
 * can hold them and torch's distribute_tensor makes them, so the arithmetic here does not refuse;
 * layout.h does where the target is a model of FSDP.
 *
 * Nothing here allocates, and time does not depend on sizes: 30 to 150 ns a box, for any n
 * and split factor.
 */
#ifndef FSDPCK_LAYOUT_SHARD_BOX_H
#define FSDPCK_LAYOUT_SHARD_BOX_H

#include "base/status.h"
#include "state/box.h"
#include "state/mesh.h"

typedef enum shard_rule { SHARD_PHYSICAL, SHARD_RECORDED } shard_rule;

/* Offsets and sizes, ndim each, of what the rank at `coord` holds. Placements and coordinates may
 * come from a file. UNSUPPORTED: LAYOUT-PARTIAL (a Partial), LAYOUT-ORDER (placements that are no
 * order; physical rule only), LAYOUT-RUN (the rank holds no run of indices; recorded rule only);
 * BADINPUT: LAYOUT-DIM (a dim that the tensor does not have), LAYOUT-COORD (outside the mesh),
 * LAYOUT-SPLIT (split factor 0), LAYOUT-KIND (no placement_kind). */
fsdpck_status shard_box(const mesh *m, const placement *p, unsigned ndim, const uint64_t *shape,
                        const uint64_t *coord, shard_rule rule, uint64_t *offsets, uint64_t *sizes,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The mesh dims that shard tensor dim `dim`, in the order in which the cuts were made; *count of
 * them. False where the placements cannot be decoded. As torch decodes: right to left, each mesh
 * dim is put where the sizes of those before it multiply to its split factor (1 for Shard). */
bool shard_cut_order(const mesh *m, const placement *p, unsigned dim, unsigned *order,
                     unsigned *count);

/* The reverse, for writing: gives every Shard and _StridedShard of p the form that says the given
 * order: _StridedShard(d, sf) where mesh dims further right cut dim d before it, into sf pieces,
 * else Shard(d). `order` lists all mesh dims of m in the order in which they cut. */
void placements_set_strided(const mesh *m, const unsigned *order, placement *p);

/* The indices of one tensor dim that a rank holds by the recorded rule, in the order in which its
 * local tensor has them (ascending), gaps and all:
 *
 *     shard_indices l;
 *     shard_indices_init(&l, &m, p, dim, n, coord);       // checked before by shard_box
 *     for (uint64_t j = 0; j < l.count; j++)
 *         use(shard_indices_at(&l, j));
 *
 * What torch records is l.count at shard_indices_at(&l, 0), at n where it is 0. */
typedef struct shard_split {
    uint64_t full_step;   /* elements of the list before, a full chunk of the sf */
    uint64_t full_begin;  /* of the piece inside each of these */
    uint64_t full_nelems; /* of the piece there */
    uint64_t full_count;  /* chunks that are full */
    uint64_t last_begin;  /* of the piece inside the last chunk, which is shorter */
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

/* Number of distinct boxes of a tensor, empty ones told apart: the product of the mesh dims that
 * shard it; UINT64_MAX where that does not fit. */
uint64_t piece_count(const mesh *m, const placement *p);

/* Number of ranks that hold elements of a tensor that has some; the others hold an empty piece. By
 * the physical rule, without going through the ranks: of the pieces of one cut all but two are
 * alike. The placements were accepted by shard_box. */
uint64_t shard_nonempty_ranks(const mesh *m, const placement *p, unsigned ndim,
                              const uint64_t *shape);

/* Whether the rank at `coord` is the lowest of those that hold its box: its coordinates along
 * replicated mesh dims are 0. (Empty boxes of several ranks are not joined.) */
bool shard_is_first_holder(const mesh *m, const placement *p, const uint64_t *coord);

/* The ranks that hold the same box as the rank at `coord`, ascending, *rank one after the other:
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
