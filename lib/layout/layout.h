/* layout.h: sharding of a whole checkpoint: a mesh, and placement rules for its tensors.
 *
 *     layout l;
 *     layout_init(&l, &budget);
 *     RETURN_IF(mesh_parse("dp_replicate=2,dp_shard=4", &l.mesh, err));   // or layout_scale_mesh
 *     RETURN_IF(layout_add_rule(&l, LAYOUT_SHARD, "*.experts.*", 1, err)); // --shard, --replicate
 *     RETURN_IF(layout_read_tp_plan(&l, json, nbytes, err));              // --tp-plan
 *     RETURN_IF(layout_get_placements(&l, &tensor, any_size, placements, err)); // per tensor
 *     RETURN_IF(layout_check_used(&l, err));      // a rule that matched nothing: USAGE
 *     layout_release(&l);
 *
 * The name of a mesh dim determines its role (mesh_text.h). Dims of replication (HSDP's outer dim)
 * are always Replicate(). For the others the first applicable rule holds:
 *
 *   1. A tensor without dims is replicated on every mesh dim. So is a tensor without elements, and
 *      a tensor that is neither floating nor complex and was not sharded in the source, except on
 *      mesh dims over which a rule shards it.
 *   2. FSDP dim: the first --shard rule whose glob matches a name (like fully_shard's
 *      shard_placement_fn), or a --replicate rule. If both kinds match: USAGE.
 *   3. FSDP dim: as in the source. Replicated by FSDP, or whole on every rank of a source that
 *      sharded others: replicated; sharded on dim d by FSDP: Shard(d). Replicated by FSDP, but
 *      sharded over a dim that the mesh lacks: Shard(0).
 *   4. FSDP dim: Shard(0).
 *   TP dim: the first rule of the plan whose glob matches a name, or its module's (the name without
 *      its last part), else Replicate(). Without a plan as in the source.
 *   EP dim: likewise, Shard(0) or the dim of the rule. Without a rule for EP as in the source.
 *
 * Names are the FQN, and the FQN with the outer key of the model (rule_match.h).
 *
 * Tensors are sharded by ep, then tp, then fsdp (torch 2.5 to 2.15: parallelize_module first,
 * fully_shard over it). Hence FSDP's placement becomes _StridedShard if it shards a dim that tp or
 * ep to its right also shards. The returned placements already have that form.
 *
 * Optimizer state follows its parameter: `fqn` is the parameter's. For a state tensor of another
 * shape (Adafactor's row_var) set odd_state, and source_whole if it has no source placements.
 *
 * A mesh of several dims with unknown names (a DeviceMesh made without names) can only be kept:
 * each tensor then takes the source's placements; otherwise USAGE.
 */
#ifndef FSDPCK_LAYOUT_LAYOUT_H
#define FSDPCK_LAYOUT_LAYOUT_H

#include "base/alloc.h"
#include "base/status.h"
#include "layout/mesh_text.h"
#include "layout/shard_box.h"
#include "state/dtype.h"

#define LAYOUT_RULES_MAX 65536u

typedef enum layout_rule_kind {
    LAYOUT_SHARD,      /* FSDP dims: Shard(dim) */
    LAYOUT_REPLICATE,  /* FSDP dims: Replicate() */
    LAYOUT_TP_SHARD,   /* TP dims: Shard(dim) */
    LAYOUT_TP_COLWISE, /* TP dims: Shard(0) */
    LAYOUT_TP_ROWWISE, /* TP dims: Shard(1); a tensor of one dim (a bias) is replicated */
    LAYOUT_TP_REPLICATE,
    LAYOUT_EP_SHARD /* EP dims: Shard(dim) */
} layout_rule_kind;

typedef struct layout_rule {
    uint8_t kind;
    uint8_t dim;
    uint64_t matched; /* tensors */
    bool fits;        /* one of them has the dim named in the rule */
    char *glob;       /* as for fnmatch; '*' also matches dots */
} layout_rule;

typedef struct layout {
    mesh mesh;
    vec rules;                /* layout_rule, in the order given */
    bool has_tp_plan;         /* false: TP follows the source */
    bool has_ep_rule;         /* false: EP follows the source */
    const char *tp_plan_path; /* for messages; NULL: unknown; borrowed */
    uint64_t cut_by_default;  /* tensors whose FSDP dim neither a rule nor the source names */
    bool moves_uneven;        /* shard dim 0 instead of LAYOUT-UNEVEN, if only the source names
                               * the dim */
    uint64_t moved;           /* tensors with dim 0 for that reason */
    budget *owner;
} layout;

/* Description of one tensor. */
typedef struct layout_tensor {
    const char *fqn;       /* the parameter's: for optimizer state that of its parameter */
    const char *outer_fqn; /* with the outer key of the model; NULL if it has none */
    dtype dtype;
    unsigned ndim;
    const uint64_t *shape;
    /* Sharding in the source; NULL if not recorded (one rank). Placements are matched by the role
     * of the mesh dim, not by its position. */
    const mesh *source_mesh;
    const placement *source;
    uint8_t source_absent_dims; /* cat_spec's */
    bool source_whole;          /* no placements, but one chunk in a source that sharded others */
    bool odd_state;             /* rules do not apply to it */
} layout_tensor;

void layout_init(layout *l, budget *owner);
void layout_release(layout *l);

/* dim is used by the kinds that name one. USAGE: a dim of NDIM_MAX or more, an empty glob. */
fsdpck_status layout_add_rule(layout *l, layout_rule_kind kind, const char *glob, unsigned dim,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* "GLOB=DIM", the argument of --shard. */
fsdpck_status layout_add_shard_text(layout *l, const char *text,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A JSON object: glob -> "colwise", "rowwise", "replicate", "Shard(d)", "ep" or "ep:Shard(d)", or
 * an array of them for sharding by both TP and EP; the first match applies, in the order of the
 * file.
 *
 *     {"*.wq": "colwise", "*.wo": "rowwise", "*.experts.w1": ["ep", "Shard(1)"]}
 *
 * Errors: USAGE with the offset. */
fsdpck_status layout_read_tp_plan(layout *l, const char *json, size_t nbytes,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Dims of the source's mesh that a mesh for a different number of ranks loses. */
typedef struct layout_refit {
    unsigned lost_count;
    uint8_t lost[MESH_NDIM_MAX]; /* dims of the source's mesh */
    bool has_unknown;            /* the name of one of them has no known role */
    mesh keeper;                 /* keeps all dims that --mesh can name; ndim 0: none */
    uint64_t step;               /* of a keeper: the number of ranks must be a multiple of this */
    bool is_exact;               /* the keeper has the requested number of ranks */
} layout_refit;

/* The mesh for --world-size n and a source with mesh `from` (NULL: unknown, "fsdp=n").
 *
 *   If n is the source's number of ranks: its mesh, unless its dim names are unknown and
 *   !keeps_unknown.
 *   Otherwise dims of model parallelism (tp, ep, pp; cp next to an FSDP dim), from the last to the
 *   first, stay if the product of all that stay divides n. The FSDP dim takes the remaining factor;
 *   a mesh without one gets "fsdp" in front of them, if a factor remains. No other dim stays:
 *   neither replicate dims nor dims with unknown names. Dims of one rank are no loss, and a
 *   replicate dim of one stays.
 *
 * USAGE: n is 0 or too large, or the mesh has no room for another dim. */
fsdpck_status layout_scale_mesh(const mesh *from, uint64_t world_size, bool keeps_unknown, mesh *m,
                                layout_refit *refit, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Placements for l->mesh, already in their recorded form (_StridedShard if required); MESH_NDIM_MAX
 * of them, zero after the mesh's dims. Counts rule matches.
 *
 * USAGE: a rule names a dim that the tensor lacks, or a --shard and a --replicate rule match the
 * tensor. UNSUPPORTED: LAYOUT-PARTIAL (in the source); LAYOUT-UNEVEN: FSDP on a dim > 0 that does
 * not divide evenly (torch refuses to build such a model). LAYOUT-UNEVEN does not apply with
 * `any_size` (dcp, dcp-safetensors: boxes in files, which torch reshards while loading), with
 * l->moves_uneven if no rule names the dim, or if the source itself is sharded so (by
 * distribute_tensor, which has no such restriction). TP and EP shard any dim unevenly, as
 * distribute_tensor does. */
fsdpck_status layout_get_placements(layout *l, const layout_tensor *t, bool any_size,
                                    placement *placements, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* All mesh dims in the order in which they shard a tensor: ep, tp, fsdp. */
void layout_cut_order(const mesh *m, unsigned *order);

/* Call after all tensors. USAGE: a rule that matched no tensor, names a dim that none of its
 * tensors has, or uses a mesh dim that does not exist. */
fsdpck_status layout_check_used(const layout *l, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
