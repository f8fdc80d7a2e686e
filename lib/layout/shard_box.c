#include "layout/shard_box.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/text.h"
#include "layout/mesh_text.h"
#include "layout/torch_chunk.h"

static bool shards(const placement *p)
{
    return p->kind == PLACEMENT_SHARD || p->kind == PLACEMENT_STRIDED_SHARD;
}

static bool shards_dim(const placement *p, unsigned dim)
{
    return shards(p) && p->dim == dim;
}

/* Orders */

bool shard_cut_order(const mesh *m, const placement *p, unsigned dim, unsigned *order,
                     unsigned *count)
{
    unsigned n = 0;
    for (unsigned i = m->ndim; i-- > 0;) {
        if (!shards_dim(&p[i], dim))
            continue;
        const uint64_t factor = p[i].kind == PLACEMENT_STRIDED_SHARD ? p[i].split_factor : 1;
        uint64_t before = 1;
        unsigned at = 0;
        while (at < n && before != factor) {
            if (!checked_mul(before, m->sizes[order[at]], &before))
                return false;
            at++;
        }
        if (before != factor)
            return false;
        for (unsigned k = n; k > at; k--)
            order[k] = order[k - 1];
        order[at] = i;
        n++;
    }
    *count = n;
    return true;
}

void placements_set_strided(const mesh *m, const unsigned *order, placement *p)
{
    for (unsigned at = 0; at < m->ndim; at++) {
        const unsigned i = order[at];
        uint64_t factor = 1;
        if (!shards(&p[i]))
            continue;
        for (unsigned k = 0; k < at; k++)
            if (order[k] > i && shards_dim(&p[order[k]], p[i].dim))
                factor *= m->sizes[order[k]];
        p[i].kind = factor == 1 ? PLACEMENT_SHARD : PLACEMENT_STRIDED_SHARD;
        p[i].split_factor = factor == 1 ? 0 : (uint32_t)factor;
    }
}

/* The recorded rule */

/* Splits a list of n elements into `factor` chunks and each chunk into `nparts`, and takes the
 * part-th of each. All full chunks are alike; only the last one, which may be shorter, is handled
 * separately. */
static uint64_t cut_make(shard_split *c, uint64_t n, uint64_t factor, uint64_t nparts,
                         uint64_t part)
{
    uint64_t last_nelems;
    const uint64_t step = torch_chunk_size(n, factor);
    *c = (shard_split){.full_step = step, .full_count = step == 0 ? 0 : n / step};
    torch_chunk_range(step, nparts, part, &c->full_begin, &c->full_nelems);
    torch_chunk_range(n - c->full_count * step, nparts, part, &c->last_begin, &last_nelems);
    return c->full_count * c->full_nelems + last_nelems;
}

/* Position before the split of the element that is j-th after it. */
static uint64_t cut_source(const shard_split *c, uint64_t j)
{
    const uint64_t in_full = c->full_count * c->full_nelems;
    if (j < in_full)
        return j / c->full_nelems * c->full_step + c->full_begin + j % c->full_nelems;
    return c->full_count * c->full_step + c->last_begin + (j - in_full);
}

void shard_indices_init(shard_indices *l, const mesh *m, const placement *p, unsigned dim,
                        uint64_t n, const uint64_t *coord)
{
    l->count = n;
    l->ncuts = 0;
    for (unsigned i = 0; i < m->ndim; i++) {
        if (!shards_dim(&p[i], dim))
            continue;
        const uint64_t factor = p[i].kind == PLACEMENT_STRIDED_SHARD ? p[i].split_factor : 1;
        l->count = cut_make(&l->cuts[l->ncuts++], l->count, factor, m->sizes[i], coord[i]);
    }
}

uint64_t shard_indices_at(const shard_indices *l, uint64_t j)
{
    for (unsigned k = l->ncuts; k-- > 0;)
        j = cut_source(&l->cuts[k], j);
    return j;
}

bool shard_indices_is_run(const shard_indices *l)
{
    /* Every split preserves the order, so the indices ascend. */
    return l->count == 0 ||
           shard_indices_at(l, l->count - 1) - shard_indices_at(l, 0) == l->count - 1;
}

/* Boxes */

static fsdpck_status bad_placement(fsdpck_error *err, const mesh *m, const placement *p, unsigned i,
                                   unsigned ndim, const uint64_t *coord)
{
    if (p[i].kind == PLACEMENT_PARTIAL)
        return FAIL(err, UNSUPPORTED, LAYOUT_PARTIAL,
                    "tensor is Partial on mesh dim %u: its ranks hold unreduced partial sums", i);
    if (!shards(&p[i]))
        return FAIL(err, BADINPUT, LAYOUT_KIND, "mesh dim %u has no known placement", i);
    if (p[i].dim >= ndim)
        return FAIL(err, BADINPUT, LAYOUT_DIM, "mesh dim %u shards dim %u of a tensor of %u dim%s",
                    i, (unsigned)p[i].dim, ndim, text_plural(ndim));
    if (coord[i] >= m->sizes[i])
        return FAIL(err, BADINPUT, LAYOUT_COORD,
                    "coordinate %" PRIu64 " is outside mesh dim %u of %" PRIu64 " rank%s", coord[i],
                    i, m->sizes[i], text_plural(m->sizes[i]));
    return FAIL(err, BADINPUT, LAYOUT_SPLIT, "_StridedShard of mesh dim %u has the split factor 0",
                i);
}

static fsdpck_status dim_recorded(const mesh *m, const placement *p, unsigned dim, uint64_t n,
                                  const uint64_t *coord, uint64_t *offset, uint64_t *size,
                                  fsdpck_error *err)
{
    shard_indices l;
    shard_indices_init(&l, m, p, dim, n, coord);
    if (!shard_indices_is_run(&l))
        return FAIL(err, UNSUPPORTED, LAYOUT_RUN,
                    "rank holds %" PRIu64
                    " indices of dim %u that are not consecutive: from %" PRIu64 " to %" PRIu64,
                    l.count, dim, shard_indices_at(&l, 0), shard_indices_at(&l, l.count - 1));
    *size = l.count;
    *offset = l.count == 0 ? n : shard_indices_at(&l, 0);
    return FSDPCK_OK;
}

static void cut_once(uint64_t nparts, uint64_t part, uint64_t *offset, uint64_t *size)
{
    uint64_t inside;
    torch_chunk_range(*size, nparts, part, &inside, size);
    *offset += inside;
}

static fsdpck_status dim_physical(const mesh *m, const placement *p, unsigned dim, uint64_t n,
                                  const uint64_t *coord, uint64_t *offset, uint64_t *size,
                                  fsdpck_error *err)
{
    unsigned order[MESH_NDIM_MAX];
    unsigned count;
    if (!shard_cut_order(m, p, dim, order, &count))
        return FAIL(err, UNSUPPORTED, LAYOUT_ORDER,
                    "split factors of dim %u match no sharding order of this mesh", dim);
    *offset = 0;
    *size = n;
    for (unsigned k = 0; k < count; k++)
        cut_once(m->sizes[order[k]], coord[order[k]], offset, size);
    if (*size == 0)
        *offset = n;
    return FSDPCK_OK;
}

fsdpck_status shard_box(const mesh *m, const placement *p, unsigned ndim, const uint64_t *shape,
                        const uint64_t *coord, shard_rule rule, uint64_t *offsets, uint64_t *sizes,
                        fsdpck_error *err)
{
    uint64_t strided = 0; /* bits of tensor dims; NDIM_MAX is 64 */
    for (unsigned d = 0; d < ndim; d++) {
        offsets[d] = 0;
        sizes[d] = shape[d];
    }
    for (unsigned i = 0; i < m->ndim; i++) {
        if (p[i].kind == PLACEMENT_REPLICATE)
            continue;
        if (!shards(&p[i]) || p[i].dim >= ndim || coord[i] >= m->sizes[i] ||
            (p[i].kind == PLACEMENT_STRIDED_SHARD && p[i].split_factor == 0))
            return bad_placement(err, m, p, i, ndim, coord);
        const unsigned d = p[i].dim;
        if (p[i].kind == PLACEMENT_STRIDED_SHARD) {
            strided |= (uint64_t)1 << d;
            continue;
        }
        /* Plain Shards: both rules are left to right. Not for dims with a later _StridedShard. */
        cut_once(m->sizes[i], coord[i], &offsets[d], &sizes[d]);
        if (sizes[d] == 0)
            offsets[d] = shape[d];
    }
    for (unsigned d = 0; strided != 0; d++, strided >>= 1) {
        if ((strided & 1) == 0)
            continue;
        RETURN_IF((rule == SHARD_RECORDED ? dim_recorded : dim_physical)(
            m, p, d, shape[d], coord, &offsets[d], &sizes[d], err));
    }
    return FSDPCK_OK;
}

/* Ranks with the same box */

uint64_t piece_count(const mesh *m, const placement *p)
{
    uint64_t count = 1;
    for (unsigned i = 0; i < m->ndim; i++)
        if (shards(&p[i]) && !checked_mul(count, m->sizes[i], &count))
            return UINT64_MAX;
    return count;
}

typedef struct alike {
    uint64_t nelems;
    uint64_t count;
} alike;

/* Parts of equal size are counted together: every split at most doubles the number of sizes. */
#define ALIKE_MAX (1u << MESH_NDIM_MAX)

static unsigned alike_add(alike *list, unsigned used, uint64_t nelems, uint64_t count)
{
    unsigned i = 0;
    if (nelems == 0 || count == 0)
        return used;
    while (i < used && list[i].nelems != nelems)
        i++;
    if (i == used)
        list[used++] = (alike){.nelems = nelems};
    list[i].count += count;
    return used;
}

/* Number of nonempty parts of a dim of n, after all its splits. */
static uint64_t dim_filled(const mesh *m, const unsigned *order, unsigned ncuts, uint64_t n)
{
    alike lists[2][ALIKE_MAX];
    alike *now = lists[0];
    alike *next = lists[1];
    unsigned used = alike_add(now, 0, n, 1);
    for (unsigned k = 0; k < ncuts; k++) {
        unsigned made = 0;
        for (unsigned i = 0; i < used; i++) {
            const uint64_t full = torch_chunk_size(now[i].nelems, m->sizes[order[k]]);
            made = alike_add(next, made, full, now[i].nelems / full * now[i].count);
            made = alike_add(next, made, now[i].nelems % full, now[i].count);
        }
        alike *const swap = now;
        now = next;
        next = swap;
        used = made;
    }
    uint64_t filled = 0;
    for (unsigned i = 0; i < used; i++)
        filled += now[i].count;
    return filled;
}

uint64_t shard_nonempty_ranks(const mesh *m, const placement *p, unsigned ndim,
                              const uint64_t *shape)
{
    uint64_t filled = 1;
    uint64_t done = 0; /* bits of tensor dims */
    for (unsigned i = 0; i < m->ndim; i++) {
        unsigned order[MESH_NDIM_MAX];
        unsigned ncuts;
        if (!shards(&p[i])) {
            filled *= m->sizes[i]; /* at most MESH_RANKS_MAX at the end */
            continue;
        }
        const unsigned d = p[i].dim;
        if (d >= ndim || (done >> d & 1) != 0)
            continue;
        done |= (uint64_t)1 << d;
        if (shard_cut_order(m, p, d, order, &ncuts))
            filled *= dim_filled(m, order, ncuts, shape[d]);
    }
    return filled;
}

bool shard_is_first_holder(const mesh *m, const placement *p, const uint64_t *coord)
{
    for (unsigned i = 0; i < m->ndim; i++)
        if (!shards(&p[i]) && coord[i] != 0)
            return false;
    return true;
}

void shard_holders_begin(shard_holders *h, const mesh *m, const placement *p, const uint64_t *coord)
{
    *h = (shard_holders){.m = m, .p = p};
    for (unsigned i = 0; i < m->ndim; i++)
        h->coord[i] = shards(&p[i]) ? coord[i] : 0;
}

bool shard_holders_next(shard_holders *h, uint64_t *rank)
{
    if (h->done)
        return false;
    *rank = mesh_rank(h->m, h->coord);
    h->done = true;
    for (unsigned i = h->m->ndim; i-- > 0 && h->done;) {
        if (shards(&h->p[i]))
            continue;
        h->done = ++h->coord[i] == h->m->sizes[i];
        if (h->done)
            h->coord[i] = 0;
    }
    return true;
}
