/* piece.h: which part of a tensor a rank holds, from a mesh and placements.
 *
 *     uint64_t coord[MESH_NDIM_MAX], offsets[NDIM_MAX], sizes[NDIM_MAX];
 *     RETURN_IF(mesh_check(&m, err));          // once, where the mesh comes from a file
 *     mesh_coord(&m, rank, coord);
 *     RETURN_IF(piece_box(&m, placements, ndim, shape, coord, PIECE_PHYSICAL, offsets, sizes, err));
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
 *             (chunk.h).
 *
 * Both cut a dim of n into pieces that are the same where n divides evenly, and for most n that do
 * not; where they differ torch's own record is wrong about the data (defect D1; torch 2.10 to 2.15;
 * (n, FSDP, TP) = (7, 3, 2), (9, 4, 2), (11, 3, 3), ...). Without a _StridedShard they are one.
 *
 * A physical piece is always a run of indices. The recorded rule may leave gaps ([Shard(0),
 * _StridedShard(0, 2)] of 8 on (2, 2): 0 and 2). Offset and size cannot express that: it is an error
 * here, never a guess; piece_list below shows such a list as it is. An empty piece lies at the end
 * of its dim, as torch records it.
 *
 * Dims d > 0 that do not divide evenly: torch's FSDP refuses them; DCP, safetensors and rank files
 * can hold them and torch's distribute_tensor makes them, so the arithmetic here does not refuse;
 * layout.h does where the target is a model of FSDP.
 *
 * Nothing here allocates, and time does not depend on sizes: 30 to 150 ns a box, for any n
 * and split factor.
 */
#ifndef FSDPCK_LAYOUT_PIECE_H
#define FSDPCK_LAYOUT_PIECE_H

#include "base/status.h"
#include "state/box.h"
#include "state/mesh.h"

typedef enum piece_rule { PIECE_PHYSICAL, PIECE_RECORDED } piece_rule;

/* Offsets and sizes, ndim each, of what the rank at `coord` holds. Placements and coordinates may
 * come from a file. UNSUPPORTED: LAYOUT-PARTIAL (a Partial), LAYOUT-ORDER (placements that are no
 * order; physical rule only), LAYOUT-RUN (the rank holds no run of indices; recorded rule only);
 * BADINPUT: LAYOUT-DIM (a dim that the tensor does not have), LAYOUT-COORD (outside the mesh),
 * LAYOUT-SPLIT (split factor 0), LAYOUT-KIND (no placement_kind). */
fsdpck_status piece_box(const mesh *m, const placement *p, unsigned ndim, const uint64_t *shape,
                        const uint64_t *coord, piece_rule rule, uint64_t *offsets, uint64_t *sizes,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The mesh dims that shard tensor dim `dim`, in the order in which the cuts were made; *count of
 * them. False where the placements cannot be decoded. As torch decodes: right to left, each mesh
 * dim is put where the sizes of those before it multiply to its split factor (1 for Shard). */
bool piece_order(const mesh *m, const placement *p, unsigned dim, unsigned *order, unsigned *count);

/* The reverse, for writing: gives every Shard and _StridedShard of p the form that says the given
 * order: _StridedShard(d, sf) where mesh dims further right cut dim d before it, into sf pieces,
 * else Shard(d). `order` lists all mesh dims of m in the order in which they cut. */
void piece_stride_placements(const mesh *m, const unsigned *order, placement *p);

/* The indices of one tensor dim that a rank holds by the recorded rule, in the order in which its
 * local tensor has them (ascending), gaps and all:
 *
 *     piece_list l;
 *     piece_list_init(&l, &m, p, dim, n, coord);       // checked before by piece_box
 *     for (uint64_t j = 0; j < l.count; j++)
 *         use(piece_list_at(&l, j));
 *
 * What torch records is l.count at piece_list_at(&l, 0), at n where it is 0. */
typedef struct piece_cut {
    uint64_t full_step;   /* elements of the list before, a full chunk of the sf */
    uint64_t full_begin;  /* of the piece inside each of these */
    uint64_t full_nelems; /* of the piece there */
    uint64_t full_count;  /* chunks that are full */
    uint64_t last_begin;  /* of the piece inside the last chunk, which is shorter */
} piece_cut;

typedef struct piece_list {
    uint64_t count;
    unsigned ncuts;
    piece_cut cuts[MESH_NDIM_MAX];
} piece_list;

void piece_list_init(piece_list *l, const mesh *m, const placement *p, unsigned dim, uint64_t n,
                     const uint64_t *coord);
/* j < l->count */
uint64_t piece_list_at(const piece_list *l, uint64_t j);
/* Whether the indices are consecutive. */
bool piece_list_is_run(const piece_list *l);

/* Number of distinct boxes of a tensor, empty ones told apart: the product of the mesh dims that
 * shard it; UINT64_MAX where that does not fit. */
uint64_t piece_count(const mesh *m, const placement *p);

/* Number of ranks that hold elements of a tensor that has some; the others hold an empty piece. By
 * the physical rule, without going through the ranks: of the pieces of one cut all but two are
 * alike. The placements were accepted by piece_box. */
uint64_t piece_filled_ranks(const mesh *m, const placement *p, unsigned ndim,
                            const uint64_t *shape);

/* Whether the rank at `coord` is the lowest of those that hold its box: its coordinates along
 * replicated mesh dims are 0. (Empty boxes of several ranks are not joined.) */
bool piece_is_first(const mesh *m, const placement *p, const uint64_t *coord);

/* The ranks that hold the same box as the rank at `coord`, ascending, *rank one after the other:
 *
 *     piece_holders h;
 *     for (piece_holders_begin(&h, m, p, coord); piece_holders_next(&h, &rank);) ...
 */
typedef struct piece_holders {
    const mesh *m;
    const placement *p;
    uint64_t coord[MESH_NDIM_MAX];
    bool done;
} piece_holders;

void piece_holders_begin(piece_holders *h, const mesh *m, const placement *p,
                         const uint64_t *coord);
bool piece_holders_next(piece_holders *h, uint64_t *rank);

#endif
