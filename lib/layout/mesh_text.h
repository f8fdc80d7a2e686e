/* mesh_text.h: text form of meshes and placements.
 *
 *     mesh m;
 *     mesh_role roles[MESH_NDIM_MAX];
 *     RETURN_IF(mesh_parse("dp_replicate=2,dp_shard=4,tp=2", &m, err));
 *     mesh_print(&m, &text);                    // "dp_replicate=2,dp_shard=4,tp=2"
 *     placements_print(p, m.ndim, &text);       // "[Replicate(), Shard(0), Shard(1)]"
 *     mesh_roles(&m, roles);                    // ROLE_REPLICATE, ROLE_FSDP, ROLE_TP
 *
 * A mesh from a file must pass mesh_check before any other use.
 */
#ifndef FSDPCK_LAYOUT_MESH_TEXT_H
#define FSDPCK_LAYOUT_MESH_TEXT_H

#include "base/alloc.h"
#include "base/status.h"
#include "state/mesh.h"

/* Role of a mesh dim, determined by its name (those of torchtitan, verl and Lightning). */
typedef enum mesh_role {
    ROLE_UNKNOWN,
    ROLE_REPLICATE, /* dp_replicate, ddp, replicate: HSDP's outer dim */
    ROLE_FSDP,      /* dp_shard, fsdp, shard, dp, data, data_parallel, dp_shard_mod_ep, efsdp,
                     * each also with the suffix _cp: parameters are sharded over it */
    ROLE_CP,        /* cp: FSDP shards over it too */
    ROLE_TP,        /* tp, model, tensor_parallel: by the TP plan */
    ROLE_EP,        /* ep: experts, dim 0 */
    ROLE_PIPELINE   /* pp, pipe, pipeline: only in a source; shards no tensor */
} mesh_role;

#define ROLE_COUNT (ROLE_PIPELINE + 1u)

mesh_role mesh_role_of(const char *name);

/* Roles of all dims, by name. The only dim of a mesh is FSDP's if its name has no role, or if it is
 * a cp. */
void mesh_roles(const mesh *m, mesh_role *roles);

/* The mesh dim with this role; m->ndim if none has it. */
unsigned mesh_dim_of(const mesh *m, mesh_role role);

/* "NAME=SIZE,..." with known names, each role once, sizes from 1, at most MESH_NDIM_MAX dims and
 * MESH_RANKS_MAX ranks. A cp directly after an FSDP dim is merged into it, as in torchtitan:
 * "dp_shard=4,cp=2" is the dim "dp_shard_cp" of 8. Errors: USAGE. */
fsdpck_status mesh_parse(const char *text, mesh *m, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Checks the limits: 1 to MESH_NDIM_MAX dims, sizes from 1, at most MESH_RANKS_MAX ranks,
 * terminated names. BADINPUT, LAYOUT-MESH. */
fsdpck_status mesh_check(const mesh *m, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Number of ranks; UINT64_MAX on overflow. */
uint64_t mesh_size(const mesh *m);
/* Requires a mesh that passed mesh_check. */
void mesh_coord(const mesh *m, uint64_t rank, uint64_t *coord);
uint64_t mesh_rank(const mesh *m, const uint64_t *coord);

/* "fsdp=8"; "2x4" if a dim has no name. Names are escaped for a terminal. */
void mesh_print(const mesh *m, text_buf *out);
/* In torch's form: "Replicate()", "Shard(0)", "_StridedShard(0, 2)"; a single one, or "[..., ...]"
 * for several mesh dims. */
void placements_print(const placement *p, unsigned mesh_ndim, text_buf *out);

#endif
