/* layout.h: how a whole checkpoint shall be cut: a mesh, and a placement rule for every tensor.
 *
 *     layout l;
 *     layout_init(&l, &budget);
 *     RETURN_IF(mesh_parse("dp_replicate=2,dp_shard=4", &l.mesh, err));   // or layout_scale_mesh
 *     RETURN_IF(layout_add_rule(&l, LAYOUT_SHARD, "*.experts.*", 1, err)); // --shard, --replicate
 *     RETURN_IF(layout_read_tp_plan(&l, json, nbytes, err));              // --tp-plan
 *     RETURN_IF(layout_get_placements(&l, &tensor, any_size, placements, err));    // for each tensor
 *     RETURN_IF(layout_check_used(&l, err));      // a rule that matched nothing: USAGE
 *     layout_release(&l);
 *
 * What a mesh dim does is told by its name (mesh_text.h). Dims of replication (HSDP's outer dim) are
 * always Replicate(). The others, first that applies:
 *
 *   1. A tensor without dims is replicated on every mesh dim. So is one without elements, and one
 *      that is neither floating nor complex and was not sharded in the source, but for the mesh dims
 *      that a rule shards it over.
 *   2. FSDP dim: the first --shard rule whose glob matches a name (the role of fully_shard's
 *      shard_placement_fn), or a --replicate rule. Where both kinds match: USAGE.
 *   3. FSDP dim: what the source says. Replicated by FSDP, or whole on every rank of a source that
 *      sharded others: replicated; sharded on dim d by FSDP: Shard(d). Replicated by FSDP, but
 *      sharded over a dim that the mesh does not have: Shard(0).
 *   4. FSDP dim: Shard(0).
 *   TP dim: the first rule of the plan whose glob matches a name, or its module's (the name without
 *      its last part), else Replicate(). Without a plan as the source says.
 *   EP dim: likewise, Shard(0) or the dim that the rule names. Without a rule for EP as the source
 *      says.
 *
 * Names are the FQN, and that with the outer key which the model lies under (rule_match.h).
 *
 * Cuts are made by ep, then tp, then fsdp (torch 2.5 to 2.15: parallelize_module first, fully_shard
 * over it), so FSDP's placement becomes _StridedShard where it cuts a dim that tp or ep to its right
 * cut too. The placements given back say so already.
 *
 * Optimizer state follows its parameter: `fqn` is the parameter's. A state tensor of another shape
 * (Adafactor's row_var) is no moment of it: say odd_state, and source_whole where there is no
 * source.
 *
 * A mesh of several dims with names that say nothing (a DeviceMesh made without names) can only be
 * kept as it is: each tensor then takes the source's placements; else USAGE.
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
    bool fits;        /* one of them has the dim that it names */
    char *glob;       /* fnmatch's; '*' crosses dots */
} layout_rule;

typedef struct layout {
    mesh mesh;
    vec rules;                /* layout_rule, in the order given */
    bool has_tp_plan;         /* else TP follows the source */
    bool has_ep_rule;         /* else EP follows the source */
    const char *tp_plan_path; /* for messages; NULL: not known; borrowed */
    uint64_t cut_by_default;  /* tensors for which neither rule nor source names FSDP's dim */
    bool moves_uneven;        /* in place of LAYOUT-UNEVEN, where only the source names the dim */
    uint64_t moved;           /* tensors that got dim 0 so */
    budget *owner;
} layout;

/* What is known of a tensor. */
typedef struct layout_tensor {
    const char *fqn;       /* the parameter's: for optimizer state that of its parameter */
    const char *outer_fqn; /* with the outer key of the model; NULL where it has none */
    dtype dtype;
    unsigned ndim;
    const uint64_t *shape;
    /* How the source holds it; NULL where it does not say (one rank). Placements are taken by the
     * role of the mesh dim, not by its position. */
    const mesh *source_mesh;
    const placement *source;
    uint8_t source_absent_dims; /* cat_spec's */
    bool source_whole;          /* no source, but in one chunk of a source that sharded others */
    bool odd_state;             /* rules do not name it */
} layout_tensor;

void layout_init(layout *l, budget *owner);
void layout_release(layout *l);

/* dim counts for the kinds that name one. USAGE: a dim of NDIM_MAX or more, an empty glob. */
fsdpck_status layout_add_rule(layout *l, layout_rule_kind kind, const char *glob, unsigned dim,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* "GLOB=DIM", as --shard takes it. */
fsdpck_status layout_add_shard_text(layout *l, const char *text,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A JSON object: glob -> "colwise", "rowwise", "replicate", "Shard(d)", "ep" or "ep:Shard(d)", or an
 * array of them where both TP and EP shall cut; first match wins, in the order of the file.
 *
 *     {"*.wq": "colwise", "*.wo": "rowwise", "*.experts.w1": ["ep", "Shard(1)"]}
 *
 * Errors: USAGE with the offset. */
fsdpck_status layout_read_tp_plan(layout *l, const char *json, size_t nbytes,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What a mesh for another number of ranks loses of the source's. */
typedef struct layout_refit {
    unsigned lost_count;
    uint8_t lost[MESH_NDIM_MAX]; /* dims of the source's mesh */
    bool has_unknown;            /* one of them has a name that does not say what it is for */
    mesh keeper;                 /* has all that --mesh can name; ndim 0: none */
    uint64_t step;               /* of a keeper: the number of ranks must be a multiple of this */
    bool is_exact;               /* the keeper has the number of ranks that was asked for */
} layout_refit;

/* The mesh for --world-size n on a source with mesh `from` (NULL: none known, "fsdp=n").
 *
 *   n is the source's number of ranks: its mesh, unless names of its dims say nothing and
 *   !keeps_unknown.
 *   Else: dims of model parallelism (tp, ep, pp; cp beside an FSDP dim), from the last to the first,
 *   stay where the product of all that stay divides n. The FSDP dim takes the rest; a mesh without
 *   one gets "fsdp" in front of them, where a rest is left. Nothing else stays: replicate dims, and
 *   dims whose names say nothing. Dims of one rank are no loss, and a replicate dim of one stays.
 *
 * USAGE: n is 0 or too large, or the mesh has no room for another dim. */
fsdpck_status layout_scale_mesh(const mesh *from, uint64_t world_size, bool keeps_unknown, mesh *m,
                                layout_refit *refit, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Placements for l->mesh, already in their recorded form (_StridedShard where due); MESH_NDIM_MAX of
 * them, zero behind the mesh's dims. Counts rule matches. USAGE: a rule names a dim that the tensor
 * does not have, or a --shard and a --replicate rule name the tensor. UNSUPPORTED: LAYOUT-PARTIAL
 * (the source's); LAYOUT-UNEVEN: FSDP on a dim > 0 that does not divide evenly (torch refuses to
 * build such a model), unless `any_size` (dcp, dcp-safetensors: boxes in files, which torch cuts
 * anew while it loads them), or l->moves_uneven and no rule names the dim, or the source itself is so cut (by distribute_tensor, which FSDP's rule
 * does not bind). TP and EP cut any dim unevenly, as distribute_tensor does. */
fsdpck_status layout_get_placements(layout *l, const layout_tensor *t, bool any_size,
                                    placement *placements, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* All mesh dims in the order in which they cut a tensor: ep, tp, fsdp. */
void layout_cut_order(const mesh *m, unsigned *order);

/* After all tensors. USAGE: a rule that took no tensor, names a dim that none of its tensors has, or
 * is for a mesh dim that is not there. */
fsdpck_status layout_check_used(const layout *l, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
