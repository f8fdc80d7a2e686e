/* layout.h: how a whole checkpoint shall be cut: a mesh, and a placement rule for every tensor.
 *
 *     layout l;
 *     layout_init(&l, &budget);
 *     RETURN_IF(mesh_parse("dp_replicate=2,dp_shard=4", &l.mesh, err));   // or layout_scale_mesh
 *     RETURN_IF(layout_add_rule(&l, LAYOUT_SHARD, "*.experts.*", 1, err)); // --shard, --replicate
 *     RETURN_IF(layout_read_tp_plan(&l, json, nbytes, err));              // --tp-plan
 *     RETURN_IF(layout_place(&l, &tensor, placements, err));
 *     RETURN_IF(layout_check_used(&l, err));      // a rule that matched nothing: USAGE
 *     layout_release(&l);
 *
 * The rule of a tensor, first that applies:
 *   1. no dims, no elements, or not a floating or complex type: replicated on every mesh dim
 *      (a source that says it was sharded, and --shard, override this for integer tensors);
 *   2. --replicate and --shard by name: for the FSDP dims (shard_placement_fn's role);
 *   3. what the source says: a tensor that was whole on every rank stays replicated, one that was
 *      sharded on dim d by FSDP is sharded on d again; TP's likewise where no --tp-plan is given;
 *   4. FSDP dims: Shard(0).
 * Replicate dims are always Replicate(). TP dims follow the plan: the first rule whose glob matches
 * the parameter's FQN, or its module's (FQN without its last part), else Replicate(). EP dims are
 * Shard(0) for tensors that an `ep` rule of the plan or --shard-experts' globs match, else
 * Replicate(). Cuts are made by ep, then tp, then fsdp (torch 2.5 to 2.15), so FSDP's placement
 * becomes _StridedShard where it cuts a dim that tp or ep cuts too.
 *
 * Optimizer state follows its parameter: `fqn` is the parameter's, `shape` must be the same for its
 * placement to be taken; anything else (step, Adafactor's row_var) falls under rule 1 or 3, or is
 * replicated.
 */
#ifndef FSDPCK_LAYOUT_LAYOUT_H
#define FSDPCK_LAYOUT_LAYOUT_H

#include "base/alloc.h"
#include "base/status.h"
#include "layout/mesh_text.h"
#include "layout/piece.h"
#include "state/dtype.h"

typedef enum layout_rule_kind {
    LAYOUT_SHARD,     /* FSDP dims: Shard(dim) */
    LAYOUT_REPLICATE, /* FSDP dims: Replicate() */
    LAYOUT_TP_SHARD,  /* TP dims: Shard(dim) */
    LAYOUT_TP_COLWISE, /* TP dims: Shard(0) */
    LAYOUT_TP_ROWWISE, /* TP dims: Shard(1); a tensor of one dim (a bias) is replicated */
    LAYOUT_TP_REPLICATE,
    LAYOUT_EP_SHARD   /* EP dims: Shard(dim) */
} layout_rule_kind;

typedef struct layout_rule {
    uint8_t kind;
    uint8_t dim;
    uint64_t matched; /* tensors */
    char *glob;       /* fnmatch's; '*' crosses dots */
} layout_rule;

typedef struct layout {
    mesh mesh;
    vec rules;        /* layout_rule, in the order given */
    bool has_tp_plan; /* else TP follows the source */
    budget *owner;
} layout;

/* What is known of a tensor. */
typedef struct layout_tensor {
    const char *fqn; /* the parameter's FQN: for optimizer state that of the parameter it belongs to */
    dtype dtype;
    unsigned ndim;
    const uint64_t *shape;
    /* How the source holds it; NULL where it does not say (one rank). Placements on FSDP dims are
     * taken by role, not by position. */
    const mesh *source_mesh;
    const placement *source;
    bool source_whole; /* in one chunk of a source of many ranks */
} layout_tensor;

void layout_init(layout *l, budget *owner);
void layout_release(layout *l);

/* dim counts for the kinds that name one. USAGE: a dim of NDIM_MAX or more. */
fsdpck_status layout_add_rule(layout *l, layout_rule_kind kind, const char *glob, unsigned dim,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* "GLOB=DIM", as --shard takes it. */
fsdpck_status layout_add_shard_text(layout *l, const char *text, fsdpck_error *err)
    FSDPCK_MUST_CHECK;
/* A JSON object: glob -> "colwise", "rowwise", "replicate", "Shard(d)", "ep" or "ep:Shard(d)";
 * first match wins, in the order of the file. Errors: USAGE with the offset or the key. */
fsdpck_status layout_read_tp_plan(layout *l, const char *json, size_t nbytes,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The mesh for --world-size n on a source with mesh `from` (NULL: none known): the FSDP dim takes
 * what the other dims leave; without a mesh "fsdp=n". USAGE where n is no multiple of the other
 * dims: the message names them. */
fsdpck_status layout_scale_mesh(const mesh *from, uint64_t world_size, mesh *m,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Placements for l->mesh, already in their recorded form (_StridedShard where due). Counts rule
 * matches. UNSUPPORTED, LAYOUT-UNEVEN: FSDP on a dim > 0 that does not divide evenly (torch refuses
 * to build such a model), unless `any_size` (file formats that do not care: dcp-safetensors). */
fsdpck_status layout_place(layout *l, const layout_tensor *t, bool any_size, placement *placements,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

fsdpck_status layout_check_used(const layout *l, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
