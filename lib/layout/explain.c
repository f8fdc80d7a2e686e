#include "layout/explain.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "layout/chunk.h"

/* More ways to lay the dims of a tensor over those of a mesh than this are not tried. */
#define TRIES_MAX 4096u
/* Candidates times patterns: no search in a real checkpoint comes near. */
#define SOLVES_MAX ((uint64_t)1 << 22)

typedef struct pattern_dim {
    unsigned dim;
    uint64_t n;
    size_t begins_at; /* in explain.begins, ascending from 0 */
    size_t count;
} pattern_dim;

/* Boxes that are the product of intervals of each dim: the only form that placements make. */
typedef struct explain_pattern {
    bool is_grid;
    uint64_t nboxes;
    unsigned ndims; /* cut ones */
    pattern_dim dims[MESH_NDIM_MAX];
    bool explained; /* on explain.solved */
    placement placements[MESH_NDIM_MAX];
} explain_pattern;

void explain_init(explain *x, uint64_t world_size, budget *owner)
{
    *x = (explain){.world_size = world_size,
                   .owner = owner,
                   .patterns = VEC_OF(explain_pattern, owner),
                   .begins = VEC_OF(uint64_t, owner),
                   .by_tensor = VEC_OF(uint32_t, owner),
                   .scratch = VEC_OF(uint64_t, owner)};
    strtab_init(&x->digests, owner);
}

void explain_release(explain *x)
{
    strtab_release(&x->digests);
    vec_release(&x->patterns);
    vec_release(&x->begins);
    vec_release(&x->by_tensor);
    vec_release(&x->scratch);
}

/* ---- patterns ---- */

typedef struct digest {
    uint64_t a, b;
} digest;

static void digest_add(digest *d, uint64_t v)
{
    d->a = (d->a ^ v) * UINT64_C(0x9fb21c651e98df25);
    d->a ^= d->a >> 29;
    d->b = (d->b + v) * UINT64_C(0xd6e8feb86659fd93);
    d->b ^= d->b >> 32;
}

/* Seeded, so that two patterns of one digest cannot be made on purpose. */
static digest digest_boxes(const explain *x, const catalogue *c, size_t tensor)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    const uint64_t *shape = catalogue_shape(c, tensor);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    digest d = {x->digests.seed, ~x->digests.seed};
    digest_add(&d, t->ndim);
    for (unsigned k = 0; k < t->ndim; k++)
        digest_add(&d, shape[k]);
    for (uint64_t i = t->first_chunk; i < t->first_chunk + t->nchunks; i++) {
        catalogue_chunk_box(c, i, offsets, sizes);
        for (unsigned k = 0; k < t->ndim; k++) {
            digest_add(&d, offsets[k]);
            digest_add(&d, sizes[k]);
        }
    }
    return d;
}

static int compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts what is not yet in order and keeps each value once; returns how many. */
static size_t sort_unique(uint64_t *v, size_t count)
{
    size_t kept = 0;
    bool ascending = true;
    for (size_t i = 1; i < count && ascending; i++)
        ascending = v[i - 1] <= v[i];
    if (!ascending)
        qsort(v, count, sizeof *v, compare_u64);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || v[kept - 1] != v[i])
            v[kept++] = v[i];
    return kept;
}

/* Which tensor dims the boxes cut: bits. A dim of 1 is cut where it has empty boxes. */
static uint64_t find_cut_dims(const catalogue *c, size_t tensor)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    const uint64_t *shape = catalogue_shape(c, tensor);
    uint64_t sizes[NDIM_MAX];
    uint64_t bits = 0;
    for (uint64_t i = t->first_chunk; i < t->first_chunk + t->nchunks; i++) {
        catalogue_chunk_box(c, i, NULL, sizes);
        const bool empty = box_nelems(sizes, t->ndim) == 0;
        for (unsigned k = 0; k < t->ndim; k++)
            if (empty ? sizes[k] == 0 && shape[k] == 1 : sizes[k] != shape[k])
                bits |= (uint64_t)1 << k;
    }
    return bits;
}

static fsdpck_status collect_begins(explain *x, const catalogue *c, size_t tensor, pattern_dim *dim,
                                    fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    size_t count = 0;
    x->scratch.count = 0;
    if (vec_push_n(&x->scratch, t->nchunks, err) == NULL)
        return FSDPCK_LIMIT;
    uint64_t *v = VEC_AT(&x->scratch, uint64_t, 0);
    for (uint64_t i = t->first_chunk; i < t->first_chunk + t->nchunks; i++) {
        catalogue_chunk_box(c, i, offsets, sizes);
        if (box_nelems(sizes, t->ndim) > 0 && (count == 0 || v[count - 1] != offsets[dim->dim]))
            v[count++] = offsets[dim->dim];
    }
    dim->count = sort_unique(v, count);
    dim->begins_at = x->begins.count;
    if (dim->count == 0)
        return FSDPCK_OK;
    uint64_t *begins = vec_push_n(&x->begins, dim->count, err);
    if (begins == NULL)
        return FSDPCK_LIMIT;
    memcpy(begins, v, dim->count * sizeof *v);
    return FSDPCK_OK;
}

/* The interval [offset, offset + size) among those of a dim; its count where it is none of them. */
static size_t find_interval(const explain *x, const pattern_dim *dim, uint64_t offset,
                            uint64_t size)
{
    const uint64_t *begins = VEC_AT(&x->begins, const uint64_t, dim->begins_at);
    size_t low = 0;
    size_t high = dim->count - 1;
    while (low < high) {
        const size_t middle = low + (high - low + 1) / 2;
        if (begins[middle] <= offset)
            low = middle;
        else
            high = middle - 1;
    }
    const uint64_t end = low + 1 < dim->count ? begins[low + 1] : dim->n;
    return begins[low] == offset && offset + size == end ? low : dim->count;
}

/* Whether the boxes are all products of the intervals, each there. */
static fsdpck_status check_grid(explain *x, const catalogue *c, size_t tensor, explain_pattern *p,
                                fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    uint64_t ncells = 1;
    uint64_t nfound = 0;
    for (unsigned k = 0; k < p->ndims; k++) {
        const pattern_dim *dim = &p->dims[k];
        if (!checked_mul(ncells, dim->count, &ncells) || ncells > t->nchunks || dim->count == 0 ||
            *VEC_AT(&x->begins, const uint64_t, dim->begins_at) != 0)
            return FSDPCK_OK;
    }
    x->scratch.count = 0;
    uint64_t *seen = vec_push_n(&x->scratch, (size_t)(ncells / 64 + 1), err);
    if (seen == NULL)
        return FSDPCK_LIMIT;
    for (uint64_t i = t->first_chunk; i < t->first_chunk + t->nchunks; i++) {
        uint64_t cell = 0;
        catalogue_chunk_box(c, i, offsets, sizes);
        if (box_nelems(sizes, t->ndim) == 0)
            continue;
        for (unsigned k = 0; k < p->ndims; k++) {
            const pattern_dim *dim = &p->dims[k];
            const size_t at = find_interval(x, dim, offsets[dim->dim], sizes[dim->dim]);
            if (at == dim->count)
                return FSDPCK_OK;
            cell = cell * dim->count + at;
        }
        const uint64_t bit = (uint64_t)1 << cell % 64;
        nfound += (seen[cell / 64] & bit) == 0;
        seen[cell / 64] |= bit;
    }
    p->nboxes = nfound;
    p->is_grid = nfound == ncells;
    return FSDPCK_OK;
}

static fsdpck_status make_pattern(explain *x, const catalogue *c, size_t tensor, explain_pattern *p,
                                  fsdpck_error *err)
{
    const uint64_t *shape = catalogue_shape(c, tensor);
    const uint64_t bits = find_cut_dims(c, tensor);
    for (unsigned k = 0; k < catalogue_tensor(c, tensor)->ndim; k++) {
        if ((bits >> k & 1) == 0)
            continue;
        if (p->ndims == MESH_NDIM_MAX)
            return FSDPCK_OK;
        p->dims[p->ndims++] = (pattern_dim){.dim = k, .n = shape[k]};
    }
    const size_t begins_at = x->begins.count;
    for (unsigned k = 0; k < p->ndims; k++)
        RETURN_IF(collect_begins(x, c, tensor, &p->dims[k], err));
    RETURN_IF(check_grid(x, c, tensor, p, err));
    if (!p->is_grid)
        x->begins.count = begins_at;
    return FSDPCK_OK;
}

fsdpck_status explain_add(explain *x, const catalogue *c, size_t tensor, fsdpck_error *err)
{
    const size_t known = x->patterns.count;
    uint32_t id;
    while (x->by_tensor.count <= tensor) {
        uint32_t *none = vec_push(&x->by_tensor, err);
        if (none == NULL)
            return FSDPCK_LIMIT;
        *none = STRTAB_NONE;
    }
    const cat_tensor *t = catalogue_tensor(c, tensor);
    if (t->nchunks == 0 || catalogue_tensor_nelems(c, tensor) == 0)
        return FSDPCK_OK;
    const digest d = digest_boxes(x, c, tensor);
    RETURN_IF(strtab_intern(&x->digests, (const char *)&d, sizeof d, &id, err));
    if (id >= known) {
        explain_pattern p = {0};
        RETURN_IF(make_pattern(x, c, tensor, &p, err));
        explain_pattern *slot = vec_push(&x->patterns, err);
        if (slot == NULL)
            return FSDPCK_LIMIT;
        *slot = p;
        x->solved.ndim = 0;
    }
    *VEC_AT(&x->by_tensor, uint32_t, tensor) = id;
    return FSDPCK_OK;
}

/* ---- solving ---- */

/* Whether cutting n by nparts[0], each piece by nparts[1] and so on gives just these pieces. */
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
            chunk_piece(size[level], nparts[level], part[level], &inside, &size[level + 1]);
            offset[level + 1] = offset[level] + inside;
            part[level]++;
            if (size[level + 1] == 0) { /* so are the pieces behind it */
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

/* Whether the mesh dims that `given` lays on tensor dim `dim` cut it so, in the given order. */
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

/* Whether the Shards in `given` make the pattern; `made` is then their recorded form. */
static bool placements_match(const explain *x, const explain_pattern *p, const mesh *m,
                             const placement *given, const unsigned *order, placement *made)
{
    unsigned left_to_right[MESH_NDIM_MAX];
    for (unsigned i = 0; i < m->ndim; i++)
        left_to_right[i] = i;
    memcpy(made, given, MESH_NDIM_MAX * sizeof *made);
    piece_stride_placements(m, order, made);
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

/* The mesh dims that may shard, FSDP's first; returns how many. */
static unsigned sharding_dims(const mesh *m, unsigned *list, unsigned *nfsdp)
{
    mesh_role roles[MESH_NDIM_MAX];
    unsigned n = 0;
    mesh_roles(m, roles);
    for (unsigned i = 0; i < m->ndim; i++)
        if (roles[i] == ROLE_FSDP)
            list[n++] = i;
    *nfsdp = n;
    for (unsigned i = 0; i < m->ndim; i++)
        if (roles[i] != ROLE_FSDP && roles[i] != ROLE_REPLICATE)
            list[n++] = i;
    return n;
}

/* The number-th way to lay the cut dims over the mesh dims in `list`: FSDP takes the lowest cut dim
 * first and none last, the others none first. */
static void lay(const explain_pattern *p, const unsigned *list, unsigned count, unsigned nfsdp,
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

static bool solve(const explain *x, const explain_pattern *p, const mesh *m, placement *made)
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
    const unsigned count = sharding_dims(m, list, &nfsdp);
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

bool explain_tensor(const explain *x, size_t tensor, const mesh *m, placement *placements)
{
    memset(placements, 0, MESH_NDIM_MAX * sizeof *placements);
    const uint32_t id =
        tensor < x->by_tensor.count ? *VEC_AT(&x->by_tensor, const uint32_t, tensor) : STRTAB_NONE;
    if (id == STRTAB_NONE)
        return tensor < x->by_tensor.count;
    const explain_pattern *p = VEC_AT(&x->patterns, const explain_pattern, id);
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

static mesh candidate(uint64_t nreplicas, uint64_t nfsdp, uint64_t ntp)
{
    mesh m = {0};
    if (nreplicas > 1)
        add_dim(&m, "dp_replicate", nreplicas);
    add_dim(&m, nreplicas > 1 || ntp > 1 ? "dp_shard" : "fsdp", nfsdp);
    if (ntp > 1)
        add_dim(&m, "tp", ntp);
    return m;
}

typedef struct search {
    size_t suspect;  /* tried first: what refuted the last candidate will refute the next */
    uint64_t solves; /* so far */
} search;

static bool explains_all(explain *x, const mesh *m, search *s)
{
    const size_t count = x->patterns.count;
    for (size_t k = 0; k < count; k++) {
        const size_t i = (s->suspect + k) % count;
        if (++s->solves > SOLVES_MAX)
            return false;
        explain_pattern *p = VEC_AT(&x->patterns, explain_pattern, i);
        p->explained = solve(x, p, m, p->placements);
        if (!p->explained) {
            s->suspect = i;
            return false;
        }
    }
    return true;
}

/* One family: with or without replicas, with or without TP. */
static bool try_family(explain *x, uint64_t world_size, uint64_t most_boxes, bool replicas, bool tp,
                       search *s, mesh *m)
{
    const uint64_t r_end = replicas ? world_size : 1;
    for (uint64_t r = replicas ? 2 : 1; r <= r_end && most_boxes <= world_size / r; r++) {
        if (world_size % r != 0)
            continue;
        const uint64_t rest = world_size / r;
        const uint64_t t_end = tp ? rest / 2 : 1; /* at least 2 are left for FSDP */
        for (uint64_t t = tp ? 2 : 1; t <= t_end; t++) {
            if (rest % t != 0)
                continue;
            *m = candidate(r, rest / t, t);
            if (explains_all(x, m, s))
                return true;
        }
    }
    return false;
}

fsdpck_status explain_mesh(explain *x, mesh *m, bool *found, fsdpck_error *err)
{
    uint64_t most_boxes = 1;
    search s = {0};
    bool hopeless = false;
    (void)err;
    for (size_t i = 0; i < x->patterns.count; i++) {
        const explain_pattern *p = VEC_AT(&x->patterns, const explain_pattern, i);
        hopeless = hopeless || !p->is_grid;
        most_boxes = p->nboxes > most_boxes ? p->nboxes : most_boxes;
    }
    const uint64_t world_size = x->world_size > 0 ? x->world_size : most_boxes;
    hopeless = hopeless || world_size > MESH_RANKS_MAX || most_boxes > world_size;
    *found = false;
    for (unsigned family = 0; family < 4 && !hopeless && !*found; family++)
        *found = try_family(x, world_size, most_boxes, (family & 1) != 0, (family & 2) != 0, &s, m);
    if (*found)
        x->solved = *m;
    else
        *m = candidate(1, world_size < MESH_RANKS_MAX ? world_size : MESH_RANKS_MAX, 1);
    return FSDPCK_OK;
}
