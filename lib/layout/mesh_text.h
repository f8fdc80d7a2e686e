/* mesh_text.h: meshes and placements as people write them.
 *
 *     mesh m;
 *     mesh_role roles[MESH_NDIM_MAX];
 *     RETURN_IF(mesh_parse("dp_replicate=2,dp_shard=4,tp=2", &m, err));
 *     mesh_print(&m, &text);                    // "dp_replicate=2,dp_shard=4,tp=2"
 *     placements_print(p, m.ndim, &text);       // "[Replicate(), Shard(0), Shard(1)]"
 *     mesh_roles(&m, roles);                    // ROLE_REPLICATE, ROLE_FSDP, ROLE_TP
 *
 * A mesh from a file passes mesh_check before anything else looks at it.
 */
#ifndef FSDPCK_LAYOUT_MESH_TEXT_H
#define FSDPCK_LAYOUT_MESH_TEXT_H

#include "base/alloc.h"
#include "base/status.h"
#include "state/mesh.h"

/* What a mesh dim is for, told by its name (torchtitan's, verl's and Lightning's words). */
typedef enum mesh_role {
    ROLE_UNKNOWN,
    ROLE_REPLICATE, /* dp_replicate, ddp, replicate: HSDP's outer dim */
    ROLE_FSDP,      /* dp_shard, fsdp, shard, dp, data, data_parallel, dp_shard_mod_ep, efsdp, each
                       also with _cp behind: parameters are sharded over it */
    ROLE_CP,        /* cp: FSDP shards over it too */
    ROLE_TP,        /* tp, model, tensor_parallel: as the TP plan says */
    ROLE_EP,        /* ep: experts, dim 0 */
    ROLE_PIPELINE   /* pp, pipe, pipeline: of a source alone; cuts no tensor */
} mesh_role;

#define ROLE_COUNT (ROLE_PIPELINE + 1u)

mesh_role mesh_role_of(const char *name);

/* Roles of all dims: by name, and the one dim of a mesh of one whose name says nothing of tensors is
 * FSDP's, as is a cp. */
void mesh_roles(const mesh *m, mesh_role *roles);

/* The mesh dim that has the role; m->ndim where none has. */
unsigned mesh_dim_of(const mesh *m, mesh_role role);

/* "NAME=SIZE,..." with known names, each role once, sizes from 1, at most MESH_NDIM_MAX dims and
 * MESH_RANKS_MAX ranks. cp directly behind an FSDP dim is merged into it, as torchtitan flattens
 * them: "dp_shard=4,cp=2" is the dim "dp_shard_cp" of 8. Errors: USAGE. */
fsdpck_status mesh_parse(const char *text, mesh *m, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether a mesh keeps the limits: 1 to MESH_NDIM_MAX dims, sizes from 1, at most MESH_RANKS_MAX
 * ranks, names that end. BADINPUT, LAYOUT-MESH. */
fsdpck_status mesh_check(const mesh *m, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Same sizes and names. */
bool mesh_equal(const mesh *a, const mesh *b);

/* Number of ranks; UINT64_MAX where it does not fit. */
uint64_t mesh_size(const mesh *m);
/* For a mesh that mesh_check has seen. */
void mesh_coord(const mesh *m, uint64_t rank, uint64_t *coord);
uint64_t mesh_rank(const mesh *m, const uint64_t *coord);

/* "fsdp=8"; "2x4" where a dim has no name. Names are escaped for a terminal. */
void mesh_print(const mesh *m, text_buf *out);
/* As torch prints them: "Replicate()", "Shard(0)", "_StridedShard(0, 2)"; one of them, or
 * "[..., ...]" for several mesh dims. */
void placements_print(const placement *p, unsigned mesh_ndim, text_buf *out);

#endif
