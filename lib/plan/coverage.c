#include "plan/coverage.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/text.h"

/* Steps allowed per chunk before the check gives up. A grid needs fewer than 100. */
#define STEPS_PER_CHUNK 1000u

typedef struct node_pair {
    uint32_t a, b;
} node_pair;

typedef struct leaf_boxes {
    uint32_t node;
    uint32_t begin;
    uint32_t count;
    uint64_t boxes[BOX_INDEX_LEAF + 1][2 * NDIM_MAX]; /* low ends, high ends */
} leaf_boxes;

static void load_bounds(const box_index *x, uint32_t at, uint64_t *b)
{
    catalogue_chunk_box(x->cat, x->first_chunk + x->order[at], b, b + x->ndim);
    for (uint32_t d = 0; d < x->ndim; d++)
        b[x->ndim + d] += b[d];
}

static void load_leaf(const box_index *x, uint32_t node, leaf_boxes *leaf)
{
    leaf->node = node;
    leaf->begin = x->leaves == 0 ? 0 : box_index_leaf_begin(x, node - x->leaves);
    const uint32_t end = x->leaves == 0 ? x->count : box_index_leaf_begin(x, node - x->leaves + 1);
    leaf->count = end - leaf->begin;
    for (uint32_t i = 0; i < leaf->count; i++)
        load_bounds(x, leaf->begin + i, leaf->boxes[i]);
}

static bool bounds_intersect(const uint64_t *a, const uint64_t *b, uint32_t ndim)
{
    for (uint32_t d = 0; d < ndim; d++)
        if (a[d] >= b[ndim + d] || b[d] >= a[ndim + d])
            return false;
    return true;
}

static bool leaves_overlap(const box_index *x, const leaf_boxes *a, const leaf_boxes *b,
                           struct coverage_report *r)
{
    for (uint32_t i = 0; i < a->count; i++) {
        for (uint32_t j = a->node == b->node ? i + 1 : 0; j < b->count; j++) {
            if (!bounds_intersect(a->boxes[i], b->boxes[j], x->ndim))
                continue;
            const uint64_t one = x->first_chunk + x->order[a->begin + i];
            const uint64_t two = x->first_chunk + x->order[b->begin + j];
            r->overlap = true;
            r->overlap_a = one < two ? one : two;
            r->overlap_b = one < two ? two : one;
            return true;
        }
    }
    return false;
}

/* Joins the tree with itself: pairs of nodes with intersecting bounds are expanded, the others
 * dropped. In a clean partition almost only the pairs (node, node) remain. False if it took too
 * long. */
static bool find_overlap(const box_index *x, struct coverage_report *r)
{
    /* A pair is replaced by at most 4 of the next level, and a tree has at most 31 levels. */
    node_pair stack[4 * 32 * 2];
    leaf_boxes leaves[2];
    unsigned depth = 0;
    uint64_t steps = (uint64_t)x->count * STEPS_PER_CHUNK;
    const size_t stride = 2 * (size_t)x->ndim;

    leaves[0].node = leaves[1].node = 0;
    if (x->leaves == 0) {
        load_leaf(x, 1, &leaves[0]);
        (void)leaves_overlap(x, &leaves[0], &leaves[0], r);
        return true;
    }
    stack[depth++] = (node_pair){1, 1};
    while (depth > 0) {
        const node_pair p = stack[--depth];
        if (steps-- == 0)
            return false;
        if (p.a != p.b &&
            !bounds_intersect(x->bounds + p.a * stride, x->bounds + p.b * stride, x->ndim))
            continue;
        if (p.a < x->leaves) {
            stack[depth++] = (node_pair){2 * p.a + 1, 2 * p.b + 1};
            stack[depth++] = (node_pair){2 * p.a, 2 * p.b + 1};
            if (p.a != p.b)
                stack[depth++] = (node_pair){2 * p.a + 1, 2 * p.b};
            stack[depth++] = (node_pair){2 * p.a, 2 * p.b};
            continue;
        }
        if (leaves[0].node != p.a)
            load_leaf(x, p.a, &leaves[0]);
        if (p.a != p.b && leaves[1].node != p.b)
            load_leaf(x, p.b, &leaves[1]);
        if (leaves_overlap(x, &leaves[0], p.a == p.b ? &leaves[0] : &leaves[1], r))
            return true;
    }
    return true;
}

uint64_t coverage_count(const box_index *x, const uint64_t *offsets, const uint64_t *sizes)
{
    box_query q;
    uint64_t n = 0;
    box_query_begin(&q, x, offsets, sizes);
    while (box_query_next(&q))
        n += box_nelems(q.sizes, x->ndim);
    return n;
}

/* Finds a coordinate strictly inside the region at which some chunk begins or ends, as near to the
 * middle as possible; false if every chunk covers the whole region or nothing of it. */
static bool find_split(const box_index *x, const uint64_t *offsets, const uint64_t *sizes,
                       uint32_t *dim, uint64_t *at, uint64_t *steps)
{
    box_query q;
    double best = 2;
    box_query_begin(&q, x, offsets, sizes);
    while (box_query_next(&q)) {
        (*steps)++;
        for (uint32_t d = 0; d < x->ndim; d++) {
            const uint64_t ends[2] = {q.offsets[d] - offsets[d],
                                      q.offsets[d] + q.sizes[d] - offsets[d]};
            for (int i = 0; i < 2; i++) {
                if (ends[i] == 0 || ends[i] == sizes[d])
                    continue;
                const double where = (double)ends[i] / (double)sizes[d];
                const double off = where < 0.5 ? 0.5 - where : where - 0.5;
                if (off < best) {
                    best = off;
                    *dim = d;
                    *at = ends[i];
                }
            }
        }
    }
    return best < 2;
}

static void grow(const box_index *x, const uint64_t *within_offsets, const uint64_t *within_sizes,
                 uint64_t *offsets, uint64_t *sizes)
{
    box_query q;
    for (uint32_t d = 0; d < x->ndim; d++) {
        const uint64_t low = offsets[d];
        const uint64_t high = low + sizes[d];
        const uint64_t limit = within_offsets[d] + within_sizes[d];
        uint64_t new_low = within_offsets[d];
        uint64_t new_high = limit;
        if (low > within_offsets[d]) {
            offsets[d] = within_offsets[d];
            sizes[d] = low - within_offsets[d];
            box_query_begin(&q, x, offsets, sizes);
            while (box_query_next(&q))
                if (q.offsets[d] + q.sizes[d] > new_low)
                    new_low = q.offsets[d] + q.sizes[d];
        }
        if (high < limit) {
            offsets[d] = high;
            sizes[d] = limit - high;
            box_query_begin(&q, x, offsets, sizes);
            while (box_query_next(&q))
                if (q.offsets[d] < new_high)
                    new_high = q.offsets[d];
        }
        offsets[d] = new_low;
        sizes[d] = new_high - new_low;
    }
}

/* Halves the region repeatedly and continues where elements are missing: each step checks only the
 * chunks of the region. */
bool coverage_find_hole(const box_index *x, const uint64_t *offsets, const uint64_t *sizes,
                        uint64_t *hole_offsets, uint64_t *hole_sizes)
{
    uint64_t steps = 0;
    const size_t nbytes = x->ndim * sizeof *offsets;
    memcpy(hole_offsets, offsets, nbytes);
    memcpy(hole_sizes, sizes, nbytes);
    if (coverage_count(x, offsets, sizes) >= box_nelems(sizes, x->ndim))
        return false;
    for (;;) {
        uint32_t dim = 0;
        uint64_t at = 0;
        if (steps > (uint64_t)x->count * STEPS_PER_CHUNK)
            return false;
        if (!find_split(x, hole_offsets, hole_sizes, &dim, &at, &steps))
            break;
        const uint64_t whole = hole_sizes[dim];
        hole_sizes[dim] = at;
        if (coverage_count(x, hole_offsets, hole_sizes) == box_nelems(hole_sizes, x->ndim)) {
            hole_offsets[dim] += at;
            hole_sizes[dim] = whole - at;
        }
    }
    grow(x, offsets, sizes, hole_offsets, hole_sizes);
    return true;
}

fsdpck_status coverage_check_index(const box_index *x, struct coverage_report *r, fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];
    uint64_t sizes[NDIM_MAX];
    const uint64_t *shape = catalogue_shape(x->cat, x->tensor);
    *r = (struct coverage_report){.nelems = catalogue_tensor_nelems(x->cat, x->tensor),
                                  .distinct = x->count,
                                  .replicas = x->replica_count,
                                  .empty = x->empty_count};
    for (uint32_t i = 0; i < x->count; i++) {
        catalogue_chunk_box(x->cat, x->first_chunk + x->order[i], NULL, sizes);
        if (!checked_add(r->covered, box_nelems(sizes, x->ndim), &r->covered))
            r->covered = UINT64_MAX;
    }
    if (!find_overlap(x, r))
        return FAIL_WITH(
            err, LIMIT, LIMIT_COUNT, ("chunks of the tensor are too irregular to check"),
            (tensor, catalogue_name(x->cat, catalogue_tensor(x->cat, x->tensor)->name)),
            (found, "%" PRIu32 " boxes", x->count));
    r->hole = r->nelems > 0 && (r->overlap ? r->covered <= r->nelems : r->covered < r->nelems);
    if (r->hole && !r->overlap) {
        r->missing = r->nelems - r->covered;
        r->hole_located = coverage_find_hole(x, zeros, shape, r->hole_offsets, r->hole_sizes);
    }
    return FSDPCK_OK;
}

fsdpck_status coverage_check(const catalogue *c, uint32_t tensor, budget *owner,
                             struct coverage_report *report, fsdpck_error *err)
{
    box_index x;
    RETURN_IF(box_index_build(&x, c, tensor, owner, err));
    const fsdpck_status st = coverage_check_index(&x, report, err);
    box_index_release(&x, owner);
    return st;
}

static const char *chunk_path(const catalogue *c, uint64_t chunk)
{
    const uint32_t file = catalogue_chunk(c, chunk)->file;
    return file < catalogue_file_count(c) ? catalogue_name(c, catalogue_file(c, file)->path) : "";
}

static char *chunk_text(const catalogue *c, uint64_t chunk, char *text, size_t capacity_bytes)
{
    uint64_t offsets[NDIM_MAX];
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(c, chunk, offsets, sizes);
    const unsigned ndim = catalogue_tensor(c, catalogue_chunk(c, chunk)->tensor)->ndim;
    return box_text(text, capacity_bytes, offsets, sizes, ndim);
}

fsdpck_status coverage_error(const catalogue *c, uint32_t tensor, const struct coverage_report *r,
                             fsdpck_error *err)
{
    char a[160];
    char b[160];
    const cat_tensor *t = catalogue_tensor(c, tensor);
    if (r->overlap) {
        FAIL_WITH(err, BADINPUT, CHUNK_OVERLAP, ("chunks of a tensor partly overlap"),
                  (expected, "boxes that are equal or share no element"),
                  (found, "%s in '%s' and %s in '%s'", chunk_text(c, r->overlap_a, a, sizeof a),
                   chunk_path(c, r->overlap_a), chunk_text(c, r->overlap_b, b, sizeof b),
                   chunk_path(c, r->overlap_b)),
                  (next, r->hole ? "check the folder for a mixture of files from two saves; "
                                   "elements are missing too"
                                 : "check the folder for a mixture of files from two saves"));
    } else {
        FAIL_WITH(err, BADINPUT, CHUNK_GAP, ("chunks of a tensor do not cover it"),
                  (expected, "%" PRIu64 " element%s", r->nelems, text_plural(r->nelems)));
        if (r->hole_located)
            error_found(err, "%" PRIu64 " missing, among them %s", r->missing,
                        box_text(a, sizeof a, r->hole_offsets, r->hole_sizes, t->ndim));
        else
            error_found(err, "%" PRIu64 " missing", r->missing);
    }
    error_tensor(err, catalogue_name(c, t->name));
    return FSDPCK_BADINPUT;
}
