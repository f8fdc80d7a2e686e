#include <string.h>

#include "base/checked.h"
#include "layout/mesh_infer_pattern.h"
#include "layout/torch_chunk.h"

/* Largest number of assignments of tensor dims to mesh dims that are tried. */
#define TRIES_MAX 4096u
/* Boxes that a search may compare before it returns the best so far: about a second. */
#define WORK_MAX ((uint64_t)1 << 28)

/* ---- solving ---- */

/* Whether splitting n into nparts[0], each part into nparts[1] and so on gives exactly these parts.
 */
static bool cuts_match(const uint64_t *begins, size_t nbegins, uint64_t n, const uint64_t *nparts,
                       unsigned count)
{
    uint64_t offset[MESH_NDIM_MAX + 1] = {0};
    uint64_t size[MESH_NDIM_MAX + 1] = {n};
    uint64_t part[MESH_NDIM_MAX + 1] = {0};
    size_t found = 0;
    uint64_t most = 1;
    for (unsigned k = 0; k < count; k++)
        if (!checked_mul(most, nparts[k], &most))
            return false;
    if (most < nbegins)
        return false;
    for (unsigned level = 0;;) {
        if (level == count) {
            if (found == nbegins || begins[found] != offset[level])
                return false;
            found++;
            level--;
        } else if (part[level] < nparts[level]) {
            uint64_t inside;
            torch_chunk_range(size[level], nparts[level], part[level], &inside, &size[level + 1]);
            offset[level + 1] = offset[level] + inside;
            part[level]++;
            if (size[level + 1] == 0) { /* and the parts after it */
                part[level] = nparts[level];
                continue;
            }
            part[++level] = 0;
        } else if (level == 0) {
            break;
        } else {
            level--;
        }
    }
    return found == nbegins;
}

/* Whether the mesh dims that `given` assigns to tensor dim `dim` split it so, in the given order.
 */
static bool dim_matches(const explain *x, const pattern_dim *dim, const mesh *m,
                        const placement *given, const unsigned *order)
{
    uint64_t nparts[MESH_NDIM_MAX];
    unsigned count = 0;
    for (unsigned k = 0; k < m->ndim; k++) {
        const unsigned i = order[k];
        if (given[i].kind == PLACEMENT_SHARD && given[i].dim == dim->dim)
            nparts[count++] = m->sizes[i];
    }
    return count > 0 && cuts_match(VEC_AT(&x->begins, const uint64_t, dim->begins_at), dim->count,
                                   dim->n, nparts, count);
}

/* Whether the Shards in `given` give the pattern; `made` is then their recorded form. */
static bool placements_match(const explain *x, const mesh_infer_pattern *p, const mesh *m,
                             const placement *given, const unsigned *order, placement *made)
{
    unsigned left_to_right[MESH_NDIM_MAX];
    for (unsigned i = 0; i < m->ndim; i++)
        left_to_right[i] = i;
    memcpy(made, given, MESH_NDIM_MAX * sizeof *made);
    placements_set_strided(m, order, made);
    for (unsigned k = 0; k < p->ndims; k++) {
        const pattern_dim *dim = &p->dims[k];
        if (dim_matches(x, dim, m, given, order))
            continue;
        if (!dim_matches(x, dim, m, given, left_to_right))
            return false;
        for (unsigned i = 0; i < m->ndim; i++)
            if (given[i].kind == PLACEMENT_SHARD && given[i].dim == dim->dim)
                made[i] = given[i];
    }
    return true;
}

/* The mesh dims that may shard, FSDP's first, and last the one that a tensor tries first: ep for
 * experts, tp for others; returns their number. */
static unsigned sharding_dims(const mesh *m, bool is_experts, unsigned *list, unsigned *nfsdp)
{
    mesh_role roles[MESH_NDIM_MAX];
    unsigned n = 0;
    mesh_roles(m, roles);
    for (unsigned i = 0; i < m->ndim; i++)
        if (roles[i] == ROLE_FSDP)
            list[n++] = i;
    *nfsdp = n;
    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned i = 0; i < m->ndim; i++)
            if (roles[i] != ROLE_FSDP && roles[i] != ROLE_REPLICATE &&
                (roles[i] == ROLE_EP) == (is_experts == (pass == 1)))
                list[n++] = i;
    return n;
}

/* The number-th assignment of the split dims to the mesh dims in `list`: FSDP takes the lowest
 * split dim first and none last, the others none first. */
static void lay(const mesh_infer_pattern *p, const unsigned *list, unsigned count, unsigned nfsdp,
                unsigned number, placement *given)
{
    memset(given, 0, MESH_NDIM_MAX * sizeof *given);
    for (unsigned k = count; k-- > 0;) {
        const unsigned digit = number % (p->ndims + 1);
        const unsigned none = k < nfsdp ? p->ndims : 0;
        number /= p->ndims + 1;
        if (digit != none)
            given[list[k]] =
                (placement){.kind = PLACEMENT_SHARD,
                            .dim = (uint8_t)p->dims[k < nfsdp ? digit : digit - 1].dim};
    }
}

static bool solve(const explain *x, const mesh_infer_pattern *p, const mesh *m, placement *made)
{
    unsigned list[MESH_NDIM_MAX], order[MESH_NDIM_MAX];
    unsigned nfsdp;
    unsigned tries = 1;
    placement given[MESH_NDIM_MAX];
    memset(made, 0, MESH_NDIM_MAX * sizeof *made);
    if (!p->is_grid)
        return false;
    if (p->ndims == 0)
        return true;
    const unsigned count = sharding_dims(m, p->is_experts, list, &nfsdp);
    layout_cut_order(m, order);
    for (unsigned k = 0; k < count; k++) {
        tries *= p->ndims + 1;
        if (tries > TRIES_MAX)
            return false;
    }
    for (unsigned i = 0; i < tries; i++) {
        lay(p, list, count, nfsdp, i, given);
        if (placements_match(x, p, m, given, order, made))
            return true;
    }
    return false;
}

bool mesh_infer_tensor(const explain *x, size_t tensor, const mesh *m, placement *placements)
{
    memset(placements, 0, MESH_NDIM_MAX * sizeof *placements);
    const uint32_t id =
        tensor < x->by_tensor.count ? *VEC_AT(&x->by_tensor, const uint32_t, tensor) : STRTAB_NONE;
    if (id == STRTAB_NONE)
        return tensor < x->by_tensor.count;
    const mesh_infer_pattern *p = VEC_AT(&x->patterns, const mesh_infer_pattern, id);
    if (x->solved.ndim == 0 || !mesh_equal(&x->solved, m))
        return solve(x, p, m, placements);
    memcpy(placements, p->placements, sizeof p->placements);
    return p->explained;
}

/* ---- candidates ---- */

static void add_dim(mesh *m, const char *name, uint64_t size)
{
    memcpy(m->names[m->ndim], name, strlen(name) + 1);
    m->sizes[m->ndim++] = size;
}

/* Omits a dim of 1, except FSDP's. */
static mesh candidate(uint64_t nreplicas, uint64_t nfsdp, uint64_t nep, uint64_t ntp)
{
    mesh m = {0};
    if (nreplicas > 1)
        add_dim(&m, "dp_replicate", nreplicas);
    add_dim(&m, nreplicas * nep * ntp > 1 ? "dp_shard" : "fsdp", nfsdp);
    if (nep > 1)
        add_dim(&m, "ep", nep);
    if (ntp > 1)
        add_dim(&m, "tp", ntp);
    return m;
}

/* Cost of a mesh, in tensors: first those that it does not explain, then those that it shards
 * without FSDP, which fully_shard would have sharded. */
typedef struct cost {
    uint64_t unexplained;
    uint64_t without_fsdp;
} cost;

typedef struct search {
    explain *x;
    uint64_t world_size;
    uint64_t work; /* boxes compared */
    vec order;     /* uint32_t: patterns; those that the last mesh failed to explain come first */
    cost best;
    mesh found;
} search;

static bool is_less(const cost *a, const cost *b)
{
    return a->unexplained != b->unexplained ? a->unexplained < b->unexplained
                                            : a->without_fsdp < b->without_fsdp;
}

static bool is_cut_by(const mesh *m, const placement *p, mesh_role role)
{
    const unsigned i = mesh_dim_of(m, role);
    return i < m->ndim && p[i].kind != PLACEMENT_REPLICATE;
}

/* Keeps the mesh if it is better than the best; stops early if it is not. */
static void try_mesh(search *s, const mesh *m)
{
    cost c = {0};
    size_t against = 0;
    for (size_t k = 0; k < s->order.count && is_less(&c, &s->best); k++) {
        uint32_t *const at = VEC_AT(&s->order, uint32_t, k);
        const mesh_infer_pattern *p = VEC_AT(&s->x->patterns, const mesh_infer_pattern, *at);
        placement made[MESH_NDIM_MAX];
        s->work += p->nboxes + 1;
        const bool explained = solve(s->x, p, m, made);
        if (explained && (p->ndims == 0 || is_cut_by(m, made, ROLE_FSDP)))
            continue;
        c.unexplained += explained ? 0 : p->ntensors;
        c.without_fsdp += explained ? p->ntensors : 0;
        uint32_t *const front = VEC_AT(&s->order, uint32_t, against++);
        const uint32_t moved = *front;
        *front = *at;
        *at = moved;
    }
    if (!is_less(&c, &s->best))
        return;
    s->best = c;
    s->found = *m;
}

static bool is_over(const search *s)
{
    return s->work > WORK_MAX || (s->best.unexplained == 0 && s->best.without_fsdp == 0);
}

typedef enum family { FAMILY_HSDP = 1, FAMILY_TP = 2, FAMILY_EP = 4 } family;

/* The next factor of n from 2 on that leaves at least 2; only 1 without `used`. *f is initially 0.
 */
static bool next_factor(uint64_t n, bool used, uint64_t *f)
{
    if (!used)
        return (*f)++ == 0;
    for (*f = *f < 2 ? 2 : *f + 1; *f <= n / 2; (*f)++)
        if (n % *f == 0)
            return true;
    return false;
}

/* With or without replicas, TP and EP; at least 2 ranks remain for FSDP. */
static void try_family(search *s, unsigned kind)
{
    for (uint64_t r = 0;
         next_factor(s->world_size, (kind & FAMILY_HSDP) != 0, &r) && !is_over(s);) {
        const uint64_t rest = s->world_size / r;
        for (uint64_t e = 0; next_factor(rest, (kind & FAMILY_EP) != 0, &e) && !is_over(s);) {
            for (uint64_t t = 0;
                 next_factor(rest / e, (kind & FAMILY_TP) != 0, &t) && !is_over(s);) {
                const mesh m = candidate(r, rest / e / t, e, t);
                try_mesh(s, &m);
            }
        }
    }
}

/* Keeps each pattern's placements, for mesh_infer_tensor. */
static void keep_placements(explain *x, const mesh *m)
{
    for (size_t i = 0; i < x->patterns.count; i++) {
        mesh_infer_pattern *p = VEC_AT(&x->patterns, mesh_infer_pattern, i);
        p->explained = solve(x, p, m, p->placements);
    }
    x->solved = *m;
}

/* Renames TP to EP if it shards only dim 0 of experts, and tensors that FSDP shards along the same
 * dim: dense parameters are sharded over both as over one. (TP shards some by columns.) */
static void tell_ep(explain *x, mesh *m)
{
    const unsigned tp = mesh_dim_of(m, ROLE_TP);
    const unsigned fsdp = mesh_dim_of(m, ROLE_FSDP);
    bool has_experts = false;
    if (tp == m->ndim || mesh_dim_of(m, ROLE_EP) < m->ndim)
        return;
    for (size_t i = 0; i < x->patterns.count; i++) {
        const mesh_infer_pattern *p = VEC_AT(&x->patterns, const mesh_infer_pattern, i);
        if (!p->explained || p->placements[tp].kind == PLACEMENT_REPLICATE)
            continue;
        const bool as_one =
            p->placements[fsdp].kind != PLACEMENT_REPLICATE && p->placements[fsdp].dim == 0;
        if (p->placements[tp].dim != 0 || !(p->is_experts || as_one))
            return;
        has_experts = has_experts || p->is_experts;
    }
    if (!has_experts)
        return;
    memset(m->names[tp], 0, sizeof m->names[tp]);
    memcpy(m->names[tp], "ep", 2);
    x->solved = *m;
}

static bool has_experts(const explain *x)
{
    for (size_t i = 0; i < x->patterns.count; i++)
        if (VEC_AT(&x->patterns, const mesh_infer_pattern, i)->is_experts)
            return true;
    return false;
}

/* Collects the patterns that some mesh may explain in s->order; returns the number of sharded
 * tensors. */
static fsdpck_status search_begin(search *s, uint64_t *ncut, fsdpck_error *err)
{
    uint64_t most_boxes = 1;
    s->best.unexplained = 0;
    for (size_t i = 0; i < s->x->patterns.count; i++) {
        const mesh_infer_pattern *p = VEC_AT(&s->x->patterns, const mesh_infer_pattern, i);
        most_boxes = p->nboxes > most_boxes ? p->nboxes : most_boxes;
    }
    s->world_size = s->x->world_size > 0 ? s->x->world_size : most_boxes;
    for (size_t i = 0; i < s->x->patterns.count; i++) {
        const mesh_infer_pattern *p = VEC_AT(&s->x->patterns, const mesh_infer_pattern, i);
        *ncut += p->is_grid && p->ndims == 0 ? 0 : p->ntensors;
        if (!p->is_grid || p->ndims == 0 || p->nboxes > s->world_size)
            continue;
        RETURN_IF(vec_add(&s->order, &(uint32_t){(uint32_t)i}, err));
        s->best.unexplained += p->ntensors;
    }
    s->best.unexplained++; /* worse than any mesh */
    return FSDPCK_OK;
}

fsdpck_status mesh_infer_solve(explain *x, mesh *m, bool *found, fsdpck_error *err)
{
    search s = {.x = x, .order = VEC_OF(uint32_t, x->owner)};
    uint64_t ncut = 0;
    const fsdpck_status st = search_begin(&s, &ncut, err);
    const uint64_t possible = s.best.unexplained;
    const unsigned families = has_experts(x) ? 8 : 4;
    *found = false;
    x->otherwise = 0;
    if (st == FSDPCK_OK && s.world_size <= MESH_RANKS_MAX)
        for (unsigned kind = 0; kind < families && !is_over(&s); kind++)
            try_family(&s, kind);
    if (s.found.ndim > 0) {
        const uint64_t hopeless = ncut - (possible - 1);
        x->otherwise = hopeless + s.best.unexplained;
        *found = ncut == 0 || x->otherwise < ncut - x->otherwise;
    }
    vec_release(&s.order);
    if (*found) {
        *m = s.found;
        keep_placements(x, m);
        tell_ep(x, m);
        return st;
    }
    x->otherwise = 0;
    *m = candidate(1, s.world_size < MESH_RANKS_MAX ? s.world_size : MESH_RANKS_MAX, 1, 1);
    return st;
}
