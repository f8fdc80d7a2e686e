#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "layout/mesh_infer_pattern.h"

void mesh_infer_init(explain *x, uint64_t world_size, budget *owner)
{
    *x = (explain){.world_size = world_size,
                   .owner = owner,
                   .patterns = VEC_OF(mesh_infer_pattern, owner),
                   .begins = VEC_OF(uint64_t, owner),
                   .by_tensor = VEC_OF(uint32_t, owner),
                   .scratch = VEC_OF(uint64_t, owner)};
    strtab_init(&x->digests, owner);
}

void mesh_infer_release(explain *x)
{
    strtab_release(&x->digests);
    VEC_RELEASE_ALL(&x->patterns, &x->begins, &x->by_tensor, &x->scratch);
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

/* Tensors with several experts, divided over ranks by expert parallelism, are recognized by name: a
 * part "experts" without a number after it (that would be a single expert). */
static bool names_experts(const char *name)
{
    static const char word[] = "experts";
    for (const char *at = strstr(name, word); at != NULL; at = strstr(at + 1, word)) {
        const char *end = at + sizeof word - 1;
        if ((at == name || at[-1] == '.') && *end == '.' && !(end[1] >= '0' && end[1] <= '9'))
            return true;
    }
    return false;
}

/* Seeded, so that no input can force two patterns to have one digest. */
static digest digest_boxes(const explain *x, const catalogue *c, size_t tensor)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    const uint64_t *shape = catalogue_shape(c, tensor);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    digest d = {x->digests.seed, ~x->digests.seed};
    digest_add(&d, t->ndim);
    digest_add(&d, names_experts(catalogue_name(c, t->name)));
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

/* Sorts the unsorted part and removes duplicates; returns the count. */
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

/* Bits of the tensor dims that the boxes split. A dim of 1 is split if it has empty boxes. */
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
    return vec_add_n(&x->begins, v, dim->count, err);
}

/* Index of the interval [offset, offset + size) among those of a dim; the count if it is not among
 * them. */
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

/* Whether the boxes are exactly the products of the intervals. */
static fsdpck_status check_grid(explain *x, const catalogue *c, size_t tensor,
                                mesh_infer_pattern *p, fsdpck_error *err)
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

static fsdpck_status make_pattern(explain *x, const catalogue *c, size_t tensor,
                                  mesh_infer_pattern *p, fsdpck_error *err)
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

static bool has_boxes(const catalogue *c, size_t tensor)
{
    return catalogue_tensor(c, tensor)->nchunks > 0 && catalogue_tensor_nelems(c, tensor) > 0;
}

/* d: of its boxes. */
static fsdpck_status add_digest(explain *x, const catalogue *c, size_t tensor, const digest *d,
                                fsdpck_error *err)
{
    const size_t known = x->patterns.count;
    uint32_t id;
    while (x->by_tensor.count <= tensor) {
        RETURN_IF(vec_add(&x->by_tensor, &(uint32_t){STRTAB_NONE}, err));
    }
    if (!has_boxes(c, tensor))
        return FSDPCK_OK;
    RETURN_IF(strtab_intern(&x->digests, (const char *)d, sizeof *d, &id, err));
    if (id >= known) {
        mesh_infer_pattern p = {
            .is_experts = names_experts(catalogue_name(c, catalogue_tensor(c, tensor)->name))};
        RETURN_IF(make_pattern(x, c, tensor, &p, err));
        RETURN_IF(vec_add(&x->patterns, &p, err));
        x->solved.ndim = 0;
    }
    *VEC_AT(&x->by_tensor, uint32_t, tensor) = id;
    VEC_AT(&x->patterns, mesh_infer_pattern, id)->ntensors++;
    return FSDPCK_OK;
}

typedef struct digest_job {
    const explain *x;
    const catalogue *c;
    digest *of; /* by tensor */
} digest_job;

static fsdpck_status digest_one(void *ctx, unsigned worker, uint64_t tensor, fsdpck_error *err)
{
    const digest_job *j = ctx;
    (void)worker;
    (void)err;
    if (has_boxes(j->c, (size_t)tensor))
        j->of[tensor] = digest_boxes(j->x, j->c, (size_t)tensor);
    return FSDPCK_OK;
}

fsdpck_status mesh_infer_add(explain *x, const catalogue *c, unsigned nthreads,
                             const cancel_token *cancel, fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(c);
    digest_job j = {.x = x, .c = c, .of = budget_alloc(x->owner, count * sizeof *j.of, err)};
    if (j.of == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = pool_run(catalogue_threads(c, nthreads), count, digest_one, &j, cancel, err);
    for (size_t i = 0; i < count && st == FSDPCK_OK; i++)
        st = add_digest(x, c, i, &j.of[i], err);
    budget_free(x->owner, j.of, count * sizeof *j.of);
    return st;
}
