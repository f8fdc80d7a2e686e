#include "layout/layout.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "layout/rule_match.h"

void layout_init(layout *l, budget *owner)
{
    *l = (layout){.rules = VEC_OF(layout_rule, owner), .owner = owner};
}

void layout_release(layout *l)
{
    for (size_t i = 0; i < l->rules.count; i++) {
        char *glob = VEC_AT(&l->rules, layout_rule, i)->glob;
        budget_free(l->owner, glob, strlen(glob) + 1);
    }
    vec_release(&l->rules);
}

/* ---- rules ---- */

fsdpck_status layout_add_rule(layout *l, layout_rule_kind kind, const char *glob, unsigned dim,
                              fsdpck_error *err)
{
    if (dim >= NDIM_MAX)
        return FAIL(err, USAGE, NONE, "rule '%s' names dim %u: tensors have at most %u dims", glob,
                    dim, NDIM_MAX);
    if (glob[0] == '\0')
        return FAIL_WITH(err, USAGE, NONE, ("rule of the layout has an empty name pattern"),
                         (next, "'*' names every tensor"));
    if (l->rules.count >= LAYOUT_RULES_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "layout has more than %u rules", LAYOUT_RULES_MAX);
    const size_t nbytes = strlen(glob) + 1;
    char *copy = budget_alloc(l->owner, nbytes, err);
    if (copy == NULL)
        return FSDPCK_LIMIT;
    layout_rule *rule = vec_push(&l->rules, err);
    if (rule == NULL) {
        budget_free(l->owner, copy, nbytes);
        return FSDPCK_LIMIT;
    }
    memcpy(copy, glob, nbytes);
    *rule = (layout_rule){.kind = (uint8_t)kind, .dim = (uint8_t)dim, .glob = copy};
    l->has_ep_rule = l->has_ep_rule || kind == LAYOUT_EP_SHARD;
    return FSDPCK_OK;
}

fsdpck_status layout_add_shard_text(layout *l, const char *text, fsdpck_error *err)
{
    const char *equals = strrchr(text, '=');
    unsigned dim = 0;
    const char *digit = equals == NULL ? "" : equals + 1;
    bool ok = *digit != '\0' && strlen(digit) <= 2;
    for (; *digit != '\0' && ok; digit++) {
        ok = *digit >= '0' && *digit <= '9';
        dim = dim * 10 + (unsigned)(*digit - '0');
    }
    if (!ok)
        return FAIL_WITH(
            err, USAGE, NONE, ("cannot read '%s': expected GLOB=DIM", text),
            (next, "append the tensor dim to the pattern, such as --shard '*.experts.*=1'"));
    const size_t nbytes = (size_t)(equals - text);
    char *glob = budget_alloc(l->owner, nbytes + 1, err);
    if (glob == NULL)
        return FSDPCK_LIMIT;
    memcpy(glob, text, nbytes);
    const fsdpck_status st = layout_add_rule(l, LAYOUT_SHARD, glob, dim, err);
    budget_free(l->owner, glob, nbytes + 1);
    return st;
}

typedef enum rule_group { GROUP_FSDP, GROUP_TP, GROUP_EP } rule_group;

static rule_group group_of(uint8_t kind)
{
    switch ((layout_rule_kind)kind) {
    case LAYOUT_SHARD:
    case LAYOUT_REPLICATE:
        return GROUP_FSDP;
    case LAYOUT_EP_SHARD:
        return GROUP_EP;
    case LAYOUT_TP_SHARD:
    case LAYOUT_TP_COLWISE:
    case LAYOUT_TP_ROWWISE:
    case LAYOUT_TP_REPLICATE:
        break;
    }
    return GROUP_TP;
}

static fsdpck_status unused_rule(const layout *l, const layout_rule *rule, fsdpck_error *err)
{
    const bool of_plan = group_of(rule->kind) != GROUP_FSDP;
    const char *what = of_plan                      ? "rule of the TP plan"
                       : rule->kind == LAYOUT_SHARD ? "--shard"
                                                    : "--replicate";
    return FAIL_WITH(err, USAGE, NONE, ("%s matches no tensor: '%s'", what, rule->glob),
                     (path, of_plan ? l->tp_plan_path : NULL),
                     (next, "remove it, or list the names with inspect; the first rule that "
                            "matches a tensor applies"));
}

/* Some tensors of a module may lack the named dim, but at least one must have it. */
static fsdpck_status unfit_rule(const layout *l, const layout_rule *rule, fsdpck_error *err)
{
    return FAIL_WITH(
        err, USAGE, NONE,
        ("rule '%s' names dim %u, which none of its tensors has", rule->glob, (unsigned)rule->dim),
        (path, group_of(rule->kind) != GROUP_FSDP ? l->tp_plan_path : NULL),
        (next, rule->dim == 0 ? "remove it: its tensors have no dims to shard"
                              : "give a lower dim: dims count from 0"));
}

/* A TP plan for a mesh without tp would change nothing. */
static fsdpck_status check_group(const layout *l, const layout_rule *rule, fsdpck_error *err)
{
    const rule_group group = group_of(rule->kind);
    const mesh_role role = group == GROUP_TP ? ROLE_TP : ROLE_EP;
    if (group == GROUP_FSDP || mesh_dim_of(&l->mesh, role) < l->mesh.ndim)
        return FSDPCK_OK;
    const char *name = group == GROUP_TP ? "tp" : "ep";
    return FAIL_WITH(err, USAGE, NONE,
                     ("rule '%s' uses mesh dim %s, which the mesh lacks", rule->glob, name),
                     (path, l->tp_plan_path),
                     (next, "add it to the mesh, for example with --mesh dp_shard=4,%s=2", name));
}

/* False for colwise and rowwise on a scalar, which they ignore: "*" may cover the remaining
 * tensors. */
static bool names_dim(const layout_rule *rule)
{
    return rule->kind == LAYOUT_SHARD || rule->kind == LAYOUT_TP_SHARD ||
           rule->kind == LAYOUT_EP_SHARD;
}

fsdpck_status layout_check_used(const layout *l, fsdpck_error *err)
{
    for (size_t i = 0; i < l->rules.count; i++) {
        const layout_rule *rule = VEC_AT(&l->rules, layout_rule, i);
        RETURN_IF(check_group(l, rule, err));
        if (rule->matched == 0)
            return unused_rule(l, rule, err);
        if (!rule->fits && names_dim(rule))
            return unfit_rule(l, rule, err);
    }
    return FSDPCK_OK;
}

typedef struct matches {
    layout_rule *rules[3];            /* by rule_group; NULL: none */
    const layout_rule *contradicting; /* FSDP's: of the other kind */
    bool by_module[3];
} matches;

/* Whether a rule applies to a tensor that already has a rule of the same group. */
static bool contradicts(const matches *found, const layout_rule *rule, const rule_names *names)
{
    return group_of(rule->kind) == GROUP_FSDP && found->rules[GROUP_FSDP]->kind != rule->kind &&
           rule_names_match(names, rule->glob);
}

static void find_rules(layout *l, const layout_tensor *t, matches *found)
{
    rule_names names;
    *found = (matches){0};
    if (t->odd_state)
        return;
    rule_names_of(t, &names);
    for (size_t i = 0; i < l->rules.count; i++) {
        layout_rule *rule = VEC_AT(&l->rules, layout_rule, i);
        const rule_group group = group_of(rule->kind);
        if (found->rules[group] != NULL) {
            if (found->contradicting == NULL && contradicts(found, rule, &names))
                found->contradicting = rule;
            continue;
        }
        const bool direct = rule_names_match(&names, rule->glob);
        if (!direct && (group == GROUP_FSDP || !rule_names_match_module(&names, rule->glob)))
            continue;
        rule->matched++;
        found->rules[group] = rule;
        found->by_module[group] = !direct;
    }
}

/* ---- the source ---- */

#define NO_DIM NDIM_MAX /* replicated */

/* The tensor dim that a role shards in the source; *told is false if the source does not record it.
 */
static unsigned source_dim(const layout_tensor *t, mesh_role role, bool *told)
{
    mesh_role roles[MESH_NDIM_MAX];
    unsigned lowest = NO_DIM, own = NO_DIM;
    bool unknown = false, shards = false;
    *told = false;
    if (t->source == NULL)
        return NO_DIM;
    mesh_roles(t->source_mesh, roles);
    for (unsigned i = 0; i < t->source_mesh->ndim; i++) {
        const unsigned dim = t->source[i].kind == PLACEMENT_REPLICATE ? NO_DIM : t->source[i].dim;
        shards = shards || dim != NO_DIM;
        *told = *told || roles[i] == role;
        if (roles[i] == role && own == NO_DIM)
            own = dim;
        unknown = unknown || roles[i] == ROLE_UNKNOWN;
        if (roles[i] == ROLE_UNKNOWN)
            lowest = dim < lowest ? dim : lowest;
    }
    if (*told)
        return own;
    /* Dims without names: their sharding is attributed to FSDP. */
    *told = unknown && (lowest != NO_DIM || !shards);
    return role == ROLE_FSDP ? lowest : NO_DIM;
}

static bool source_is_sharded(const layout_tensor *t)
{
    for (unsigned i = 0; t->source != NULL && i < t->source_mesh->ndim; i++)
        if (t->source[i].kind != PLACEMENT_REPLICATE)
            return true;
    return false;
}

/* The source shards it over a dim that the new mesh lacks: every rank would hold all of it. */
static bool loses_shards(const layout *l, const layout_tensor *t)
{
    mesh_role roles[MESH_NDIM_MAX];
    if (t->source == NULL)
        return false;
    mesh_roles(t->source_mesh, roles);
    for (unsigned i = 0; i < t->source_mesh->ndim; i++)
        if (t->source[i].kind != PLACEMENT_REPLICATE &&
            mesh_dim_of(&l->mesh, roles[i]) == l->mesh.ndim)
            return true;
    return false;
}

static fsdpck_status check_source(const layout_tensor *t, fsdpck_error *err)
{
    for (unsigned i = 0; t->source != NULL && i < t->source_mesh->ndim; i++) {
        const placement *p = &t->source[i];
        if (p->kind == PLACEMENT_PARTIAL)
            return FAIL(err, UNSUPPORTED, LAYOUT_PARTIAL,
                        "tensor is Partial on mesh dim %u of the source", i);
        if (p->kind != PLACEMENT_REPLICATE && p->dim >= t->ndim)
            return FAIL(err, BADINPUT, LAYOUT_DIM, "source shards dim %u of a tensor of %u dim%s",
                        (unsigned)p->dim, t->ndim, text_plural(t->ndim));
    }
    return FSDPCK_OK;
}

/* ---- the target ---- */

static fsdpck_status no_such_dim(const layout *l, const layout_rule *rule, unsigned ndim,
                                 fsdpck_error *err)
{
    return FAIL_WITH(err, USAGE, NONE,
                     ("rule '%s' shards dim %u of a tensor of %u dim%s", rule->glob,
                      (unsigned)rule->dim, ndim, text_plural(ndim)),
                     (path, group_of(rule->kind) != GROUP_FSDP ? l->tp_plan_path : NULL),
                     (next, "give a lower dim (dims count from 0), or narrow the pattern"));
}

static fsdpck_status choose_fsdp(layout *l, const layout_tensor *t, const matches *found,
                                 unsigned *dim, fsdpck_error *err)
{
    layout_rule *rule = found->rules[GROUP_FSDP];
    bool told;
    if (rule != NULL) {
        rule->fits = rule->fits || rule->dim < t->ndim;
        *dim = rule->kind == LAYOUT_SHARD ? rule->dim : NO_DIM;
        return rule->kind == LAYOUT_SHARD && rule->dim >= t->ndim
                   ? no_such_dim(l, rule, t->ndim, err)
                   : FSDPCK_OK;
    }
    *dim = source_dim(t, ROLE_FSDP, &told);
    if (!told) {
        *dim = t->source == NULL && t->source_whole ? NO_DIM : 0;
        l->cut_by_default += *dim == 0;
    } else if (*dim == NO_DIM && loses_shards(l, t)) {
        *dim = 0;
    }
    return FSDPCK_OK;
}

/* The tensor dim of TP or EP. */
static fsdpck_status choose_dim(const layout *l, const layout_tensor *t, const matches *found,
                                rule_group group, unsigned *dim, fsdpck_error *err)
{
    layout_rule *rule = found->rules[group];
    const bool by_rules = group == GROUP_TP ? l->has_tp_plan : l->has_ep_rule;
    bool told;
    *dim = by_rules ? NO_DIM : source_dim(t, group == GROUP_TP ? ROLE_TP : ROLE_EP, &told);
    if (rule == NULL)
        return FSDPCK_OK;
    rule->fits = rule->fits || rule->dim < t->ndim;
    *dim = NO_DIM;
    switch ((layout_rule_kind)rule->kind) {
    case LAYOUT_TP_COLWISE:
        *dim = 0;
        break;
    case LAYOUT_TP_ROWWISE:
        *dim = t->ndim > 1 ? 1 : NO_DIM;
        break;
    case LAYOUT_TP_SHARD:
    case LAYOUT_EP_SHARD:
        if (rule->dim < t->ndim)
            *dim = rule->dim;
        else if (!found->by_module[group]) /* else the bias of a module whose weight is meant */
            return no_such_dim(l, rule, t->ndim, err);
        break;
    default:
        break;
    }
    return FSDPCK_OK;
}

void layout_cut_order(const mesh *m, unsigned *order)
{
    static const mesh_role turns[] = {ROLE_REPLICATE, ROLE_EP,       ROLE_TP,     ROLE_FSDP,
                                      ROLE_CP,        ROLE_PIPELINE, ROLE_UNKNOWN};
    mesh_role roles[MESH_NDIM_MAX];
    unsigned n = 0;
    mesh_roles(m, roles);
    for (size_t k = 0; k < sizeof turns / sizeof *turns; k++)
        for (unsigned i = 0; i < m->ndim; i++)
            if (roles[i] == turns[k])
                order[n++] = i;
}

/* True for a source that FSDP cannot have written: its uneven sharding may stay. */
static bool source_is_uneven(const layout_tensor *t, unsigned dim)
{
    mesh_role roles[MESH_NDIM_MAX];
    if (t->source == NULL)
        return false;
    mesh_roles(t->source_mesh, roles);
    for (unsigned i = 0; i < t->source_mesh->ndim; i++)
        if (roles[i] == ROLE_FSDP && t->source[i].kind != PLACEMENT_REPLICATE &&
            t->source[i].dim == dim && t->shape[dim] % t->source_mesh->sizes[i] != 0)
            return true;
    return false;
}

/* FSDP shards the parts that ep and tp leave; each of them must divide evenly (torch checks its
 * own). *uneven is the size of one that does not, or 0. */
static fsdpck_status find_uneven(const mesh *m, const placement *p, unsigned fsdp,
                                 const layout_tensor *t, uint64_t *uneven, fsdpck_error *err)
{
    const unsigned dim = p[fsdp].dim;
    mesh others = *m;
    placement before[MESH_NDIM_MAX] = {0};
    uint64_t coord[MESH_NDIM_MAX], offsets[NDIM_MAX], sizes[NDIM_MAX];
    *uneven = 0;
    for (unsigned i = 0; i < m->ndim; i++) {
        if (i != fsdp && p[i].kind != PLACEMENT_REPLICATE && p[i].dim == dim)
            before[i] = p[i];
        else
            others.sizes[i] = 1;
    }
    for (uint64_t rank = 0; rank < mesh_size(&others) && *uneven == 0; rank++) {
        mesh_coord(&others, rank, coord);
        RETURN_IF(shard_box(&others, before, t->ndim, t->shape, coord, SHARD_PHYSICAL, offsets,
                            sizes, err));
        *uneven = sizes[dim] % m->sizes[fsdp] == 0 ? 0 : sizes[dim];
    }
    return FSDPCK_OK;
}

static fsdpck_status refuse_uneven(const layout_tensor *t, unsigned dim, uint64_t n,
                                   uint64_t nparts, fsdpck_error *err)
{
    return FAIL_WITH(
        err, UNSUPPORTED, LAYOUT_UNEVEN,
        ("dim %u (size %" PRIu64 ") does not divide evenly over %" PRIu64 " ranks", dim, n, nparts),
        (expected, "an even split: fully_shard() requires it on every dim except 0"),
        (next,
         "shard dim 0 with --shard '%s=0', choose another number of ranks, or write --format dcp, "
         "which supports uneven shards",
         t->fqn));
}

/* A mesh with unknown dim names: only the source's own mesh is possible. */
static fsdpck_status place_as_source(const layout *l, const layout_tensor *t, const matches *found,
                                     placement *placements, fsdpck_error *err)
{
    const bool same = t->source == NULL || mesh_equal(t->source_mesh, &l->mesh);
    if (!same || found->rules[GROUP_FSDP] != NULL || found->rules[GROUP_TP] != NULL ||
        found->rules[GROUP_EP] != NULL)
        return FAIL_WITH(err, USAGE, NONE, ("names of the mesh dims do not identify their roles"),
                         (next, "give the mesh with known names, such as --mesh dp_shard=4,tp=2"));
    if (t->source != NULL)
        memcpy(placements, t->source, l->mesh.ndim * sizeof *placements);
    return FSDPCK_OK;
}

static fsdpck_status check_rules(const matches *found, fsdpck_error *err)
{
    const layout_rule *one = found->rules[GROUP_FSDP];
    const layout_rule *other = found->contradicting;
    if (other == NULL)
        return FSDPCK_OK;
    const layout_rule *shard = one->kind == LAYOUT_SHARD ? one : other;
    const layout_rule *replicate = one->kind == LAYOUT_SHARD ? other : one;
    return FAIL_WITH(err, USAGE, NONE,
                     ("--shard '%s=%u' and --replicate '%s' both match a tensor", shard->glob,
                      (unsigned)shard->dim, replicate->glob),
                     (next, "narrow one of the patterns, so that each tensor matches only one"));
}

static bool is_cut_by_default(const layout_tensor *t)
{
    const uint8_t kind = dtype_get(t->dtype)->kind;
    return box_nelems(t->shape, t->ndim) > 0 &&
           (kind == DTYPE_IS_FLOAT || kind == DTYPE_IS_COMPLEX || source_is_sharded(t));
}

/* dims: by role, the tensor dim that each shards. */
static void make_placements(const mesh *m, const unsigned *dims, placement *placements)
{
    mesh_role roles[MESH_NDIM_MAX];
    unsigned order[MESH_NDIM_MAX];
    mesh_roles(m, roles);
    memset(placements, 0, MESH_NDIM_MAX * sizeof *placements);
    for (unsigned i = 0; i < m->ndim; i++)
        if (dims[roles[i]] != NO_DIM)
            placements[i] = (placement){.kind = PLACEMENT_SHARD, .dim = (uint8_t)dims[roles[i]]};
    layout_cut_order(m, order);
    placements_set_strided(m, order, placements);
}

/* Refuses sharding that fully_shard() would refuse. */
static fsdpck_status settle_uneven(layout *l, const layout_tensor *t, bool is_named, unsigned *dims,
                                   placement *placements, fsdpck_error *err)
{
    const unsigned fsdp = mesh_dim_of(&l->mesh, ROLE_FSDP);
    const unsigned dim = dims[ROLE_FSDP];
    uint64_t uneven;
    if (fsdp == l->mesh.ndim || dim == NO_DIM || dim == 0 || source_is_uneven(t, dim))
        return FSDPCK_OK;
    RETURN_IF(find_uneven(&l->mesh, placements, fsdp, t, &uneven, err));
    if (uneven == 0)
        return FSDPCK_OK;
    if (is_named || !l->moves_uneven)
        return refuse_uneven(t, dim, uneven, l->mesh.sizes[fsdp], err);
    dims[ROLE_FSDP] = 0;
    make_placements(&l->mesh, dims, placements);
    l->moved++;
    return FSDPCK_OK;
}

static fsdpck_status place(layout *l, const layout_tensor *t, bool any_size, placement *placements,
                           fsdpck_error *err)
{
    mesh_role roles[MESH_NDIM_MAX];
    unsigned dims[ROLE_COUNT];
    matches found;
    find_rules(l, t, &found);
    if (t->ndim == 0)
        return FSDPCK_OK;
    RETURN_IF(check_source(t, err));
    RETURN_IF(check_rules(&found, err));
    const bool by_default = is_cut_by_default(t);
    bool named[3];
    for (unsigned i = 0; i < 3; i++)
        named[i] = found.rules[i] != NULL;
    if (!by_default && !named[GROUP_FSDP] && !named[GROUP_TP] && !named[GROUP_EP])
        return FSDPCK_OK;
    mesh_roles(&l->mesh, roles);
    for (unsigned i = 0; i < l->mesh.ndim; i++)
        if (roles[i] == ROLE_UNKNOWN)
            return place_as_source(l, t, &found, placements, err);
    for (unsigned i = 0; i < ROLE_COUNT; i++)
        dims[i] = NO_DIM;
    if (by_default || named[GROUP_FSDP])
        RETURN_IF(choose_fsdp(l, t, &found, &dims[ROLE_FSDP], err));
    if (by_default || named[GROUP_TP])
        RETURN_IF(choose_dim(l, t, &found, GROUP_TP, &dims[ROLE_TP], err));
    if (by_default || named[GROUP_EP])
        RETURN_IF(choose_dim(l, t, &found, GROUP_EP, &dims[ROLE_EP], err));
    make_placements(&l->mesh, dims, placements);
    return any_size ? FSDPCK_OK : settle_uneven(l, t, named[GROUP_FSDP], dims, placements, err);
}

fsdpck_status layout_get_placements(layout *l, const layout_tensor *t, bool any_size,
                                    placement *placements, fsdpck_error *err)
{
    memset(placements, 0, MESH_NDIM_MAX * sizeof *placements);
    const fsdpck_status st = place(l, t, any_size, placements, err);
    if (st != FSDPCK_OK)
        error_tensor(err, t->fqn);
    return st;
}
