#include "plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan/coverage.h"
#include "plan/plan_internal.h"
#include "plan/segment.h"
#include "state/cast.h"

/* Tensors with at most this number of chunks are scanned: an index would cost more than it saves.
 */
#define SCAN_CHUNKS BOX_INDEX_LEAF

bool plan_can_cast(dtype from, dtype to)
{
    return from == to || cast_supported(from, to);
}

static fsdpck_status store_index(plan *p, uint32_t tensor, const box_index *x, bool partial,
                                 fsdpck_error *err)
{
    RETURN_IF(vec_reserve(&p->partial, 1, err));
    box_index *kept = vec_push(&p->indexes, err);
    if (kept == NULL)
        return FSDPCK_LIMIT;
    uint8_t *flag = vec_push(&p->partial, err);
    *kept = *x;
    *flag = partial;
    p->index_of[tensor] = (uint32_t)(p->indexes.count - 1);
    return FSDPCK_OK;
}

/* First use of a source tensor: checks its chunks for overlaps, and keeps an index if it pays. Gaps
 * are not yet an error: the target may not need the missing elements. */
static fsdpck_status check_source(plan *p, uint32_t tensor, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(p->from, tensor);
    const uint64_t nelems = catalogue_tensor_nelems(p->from, tensor);
    if (p->index_of[tensor] != INDEX_UNSEEN)
        return FSDPCK_OK;
    p->index_of[tensor] = INDEX_SCAN;
    if (nelems == 0)
        return FSDPCK_OK;
    if (t->nchunks == 1) {
        uint64_t sizes[NDIM_MAX];
        catalogue_chunk_box(p->from, t->first_chunk, NULL, sizes);
        if (box_nelems(sizes, t->ndim) == nelems)
            return FSDPCK_OK;
    }
    box_index x;
    struct coverage_report report;
    RETURN_IF(box_index_build(&x, p->from, tensor, p->owner, err));
    fsdpck_status st = coverage_check_index(&x, &report, err);
    if (st == FSDPCK_OK && report.overlap)
        st = coverage_error(p->from, tensor, &report, err);
    p->totals.replicas += x.replica_count;
    if (st == FSDPCK_OK && (report.hole || x.replica_count > 0 || x.count > SCAN_CHUNKS)) {
        st = store_index(p, tensor, &x, report.hole, err);
        if (st == FSDPCK_OK)
            return st;
    }
    box_index_release(&x, p->owner);
    return st;
}

static fsdpck_status error_hole(const plan *p, uint32_t tensor, const uint64_t *offsets,
                                const uint64_t *sizes, uint64_t covered, fsdpck_error *err)
{
    const box_index *x = plan_index_of(p, tensor);
    struct coverage_report r = {
        .nelems = box_nelems(sizes, x->ndim), .covered = covered, .hole = true};
    r.missing = r.nelems - covered;
    r.hole_located = coverage_find_hole(x, offsets, sizes, r.hole_offsets, r.hole_sizes);
    return coverage_error(p->from, tensor, &r, err);
}

/* Counts the source chunks that feed a box of the target and checks that they fill it. */
static fsdpck_status check_target_box(plan *p, uint32_t tensor, const uint64_t *offsets,
                                      const uint64_t *sizes, fsdpck_error *err)
{
    const box_index *x = plan_index_of(p, tensor);
    const unsigned ndim = catalogue_tensor(p->from, tensor)->ndim;
    const uint64_t nelems = box_nelems(sizes, ndim);
    const bool partial = x != NULL && *VEC_AT(&p->partial, uint8_t, p->index_of[tensor]);
    if (x != NULL && !partial && nelems == catalogue_tensor_nelems(p->from, tensor)) {
        p->totals.segments_at_least += x->count;
        return FSDPCK_OK;
    }
    box_query q;
    uint64_t covered = 0;
    plan_query_begin(p, tensor, &q, offsets, sizes);
    while (box_query_next(&q)) {
        p->totals.segments_at_least++;
        covered += box_nelems(q.sizes, ndim);
    }
    if (covered == nelems)
        return FSDPCK_OK;
    if (x == NULL)
        return FAIL(err, INTERNAL, NONE, "plan has lost chunks of a tensor");
    return error_hole(p, tensor, offsets, sizes, covered, err);
}

static fsdpck_status check_target_tensor(plan *p, uint32_t tensor, fsdpck_error *err)
{
    const catalogue *to = &p->to->cat;
    const cat_tensor *t = catalogue_tensor(to, tensor);
    const uint32_t source = plan_source_tensor(p, tensor);
    if (source >= catalogue_tensor_count(p->from))
        return FAIL(err, INTERNAL, NONE, "target names a source tensor that does not exist");
    const cat_tensor *s = catalogue_tensor(p->from, source);
    if (!shape_equal(catalogue_shape(p->from, source), s->ndim, catalogue_shape(to, tensor),
                     t->ndim))
        return FAIL(err, INTERNAL, NONE, "target tensor and its source differ in shape");
    if (!plan_can_cast((dtype)s->dtype, (dtype)t->dtype))
        return FAIL_WITH(
            err, UNSUPPORTED, NONE,
            ("elements of %s cannot be cast to %s", dtype_get((dtype)s->dtype)->name,
             dtype_get((dtype)t->dtype)->name),
            (next, "omit the tensor from --dtype: only floating-point types can be cast"));
    RETURN_IF(check_source(p, source, err));
    const uint64_t itemsize = dtype_get((dtype)s->dtype)->itemsize_bytes;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        uint64_t offsets[NDIM_MAX];
        uint64_t sizes[NDIM_MAX];
        const cat_chunk *chunk = catalogue_chunk(to, k);
        if (chunk->place == LOCATION_EMPTY)
            continue;
        catalogue_chunk_box(to, k, offsets, sizes);
        RETURN_IF(check_target_box(p, source, offsets, sizes, err));
        p->totals.target_bytes += chunk->nbytes;
        p->totals.source_bytes += box_nelems(sizes, t->ndim) * itemsize;
    }
    return FSDPCK_OK;
}

static fsdpck_status fill(plan *p, fsdpck_error *err)
{
    const uint64_t ntensors = catalogue_tensor_count(&p->to->cat);
    p->indexes = VEC_OF(box_index, p->owner);
    p->partial = VEC_OF(uint8_t, p->owner);
    p->index_of_count = catalogue_tensor_count(p->from);
    p->index_of = budget_alloc(p->owner, p->index_of_count * sizeof *p->index_of, err);
    if (p->index_of == NULL)
        return FSDPCK_LIMIT;
    memset(p->index_of, 0xFF, p->index_of_count * sizeof *p->index_of);
    if (p->to->from.count != ntensors)
        return FAIL(err, INTERNAL, NONE, "target does not name the source of each tensor");
    for (uint64_t i = 0; i < ntensors; i++) {
        const fsdpck_status st = check_target_tensor(p, (uint32_t)i, err);
        if (st != FSDPCK_OK) {
            error_tensor(err, catalogue_name(&p->to->cat, catalogue_tensor(&p->to->cat, i)->name));
            return st;
        }
    }
    RETURN_IF(plan_index_output(p, err));
    vec_trim(&p->indexes);
    p->totals.read_amplification = 1;
    return FSDPCK_OK;
}

/* Counts the bytes that are read only for comparison. */
static void count_replica_bytes(plan *p)
{
    uint64_t extra = 0;
    if (p->opt.replicas != REPLICAS_COMPARE || p->totals.source_bytes == 0)
        return;
    for (size_t i = 0; i < p->indexes.count; i++) {
        const box_index *x = VEC_AT(&p->indexes, box_index, i);
        const dtype d = (dtype)catalogue_tensor(p->from, x->tensor)->dtype;
        for (uint32_t k = 0; k < x->replica_count; k++) {
            uint64_t sizes[NDIM_MAX];
            catalogue_chunk_box(p->from, x->first_chunk + x->replicas[k].again, NULL, sizes);
            extra += box_nelems(sizes, x->ndim) * dtype_get(d)->itemsize_bytes;
        }
    }
    p->totals.read_amplification += (double)extra / (double)p->totals.source_bytes;
}

fsdpck_status plan_new(const catalogue *from, const target *to, const plan_options *opt,
                       budget *owner, plan **out, fsdpck_error *err)
{
    plan *p = budget_alloc(owner, sizeof *p, err);
    if (p == NULL)
        return FSDPCK_LIMIT;
    p->from = from;
    p->to = to;
    p->opt = *opt;
    p->owner = owner;
    if (p->opt.tile_nbytes == 0)
        p->opt.tile_nbytes = PLAN_TILE_NBYTES;
    fsdpck_status st = FSDPCK_OK;
    if (p->opt.tile_nbytes % 4096 != 0)
        st = FAIL(err, USAGE, NONE, "tile size is not a multiple of 4096 bytes");
    if (st == FSDPCK_OK)
        st = fill(p, err);
    if (st != FSDPCK_OK) {
        plan_free(p);
        return st;
    }
    count_replica_bytes(p);
    *out = p;
    return FSDPCK_OK;
}

void plan_free(plan *p)
{
    if (p == NULL)
        return;
    budget *owner = p->owner;
    const uint64_t table_nbytes = (p->file_count + 1) * sizeof(uint64_t);
    for (size_t i = 0; i < p->indexes.count; i++)
        box_index_release(VEC_AT(&p->indexes, box_index, i), owner);
    VEC_RELEASE_ALL(&p->indexes, &p->partial);
    budget_free(owner, p->index_of, p->index_of_count * sizeof *p->index_of);
    budget_free(owner, p->order, p->order_capacity * sizeof *p->order);
    budget_free(owner, p->file_order, table_nbytes);
    budget_free(owner, p->file_constant, table_nbytes);
    budget_free(owner, p->file_deferred, table_nbytes);
    budget_free(owner, p->file_item, table_nbytes);
    budget_free(owner, p, sizeof *p);
}

void plan_get_totals(const plan *p, plan_totals *totals)
{
    *totals = p->totals;
}
