#include "state/box_index.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "state/sort.h"

typedef struct tie_context {
    const box_index *index;
    uint64_t *box_a; /* offsets, then sizes: 2*ndim */
    uint64_t *box_b;
} tie_context;

static void load_box(const box_index *x, uint32_t relative, uint64_t *box)
{
    catalogue_chunk_box(x->cat, x->first_chunk + relative, box, box + x->ndim);
}

static int compare_boxes(const void *ctx, uint32_t a, uint32_t b)
{
    const tie_context *t = ctx;
    load_box(t->index, a, t->box_a);
    load_box(t->index, b, t->box_b);
    for (uint32_t i = 0; i < 2 * t->index->ndim; i++)
        if (t->box_a[i] != t->box_b[i])
            return t->box_a[i] < t->box_b[i] ? -1 : 1;
    return 0;
}

static uint64_t hash_box(const uint64_t *box, uint32_t n)
{
    uint64_t h = 0x9E3779B97F4A7C15u;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ box[i]) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return h;
}

static bool has_elements(const catalogue *cat, uint64_t chunk)
{
    return catalogue_chunk(cat, chunk)->place != LOCATION_EMPTY;
}

/* Chunks in strictly ascending order of offsets, the common case, contain no box twice. */
static bool ascending(const box_index *x, const sort_pair *pairs, size_t n)
{
    uint64_t boxes[2][2 * NDIM_MAX];
    for (size_t i = 0; i < n; i++) {
        uint64_t *now = boxes[i % 2];
        const uint64_t *before = boxes[(i + 1) % 2];
        load_box(x, pairs[i].item, now);
        uint32_t d = 0;
        while (i > 0 && d < x->ndim && now[d] == before[d])
            d++;
        if (i > 0 && (d == x->ndim || now[d] < before[d]))
            return false;
    }
    return true;
}

static fsdpck_status store_replicas(box_index *x, const sort_pair *sorted, size_t n, budget *owner,
                                    uint8_t *again, fsdpck_error *err)
{
    uint64_t boxes[2][2 * NDIM_MAX];
    const tie_context tie = {.index = x, .box_a = boxes[0], .box_b = boxes[1]};
    uint32_t count = 0;
    for (size_t i = 1; i < n; i++)
        if (sorted[i].key == sorted[i - 1].key &&
            compare_boxes(&tie, sorted[i - 1].item, sorted[i].item) == 0)
            again[sorted[i].item] = 1, count++;
    if (count == 0)
        return FSDPCK_OK;
    x->replicas = budget_alloc(owner, (uint64_t)count * sizeof *x->replicas, err);
    if (x->replicas == NULL)
        return FSDPCK_LIMIT;
    uint32_t first = 0;
    for (size_t i = 0; i < n; i++) {
        if (again[sorted[i].item])
            x->replicas[x->replica_count++] = (box_replica){first, sorted[i].item};
        else
            first = sorted[i].item;
    }
    return FSDPCK_OK;
}

/* By `first`, then by `again`: the runs are in the order of hashes. */
static void sort_replicas(box_index *x, sort_pair *pairs, sort_pair *scratch)
{
    for (uint32_t i = 0; i < x->replica_count; i++)
        pairs[i] = (sort_pair){(uint64_t)x->replicas[i].first << 32 | x->replicas[i].again, 0};
    sort_pairs(pairs, scratch, x->replica_count, NULL, NULL);
    for (uint32_t i = 0; i < x->replica_count; i++)
        x->replicas[i] = (box_replica){(uint32_t)(pairs[i].key >> 32), (uint32_t)pairs[i].key};
}

/* Leaves the distinct boxes in pairs[0..x->count), ascending by chunk. */
static fsdpck_status split_replicas(box_index *x, sort_pair *pairs, sort_pair *scratch, size_t n,
                                    budget *owner, fsdpck_error *err)
{
    uint64_t boxes[2][2 * NDIM_MAX];
    x->count = (uint32_t)n;
    if (n < 2 || ascending(x, pairs, n))
        return FSDPCK_OK;
    uint8_t *again = budget_alloc(owner, x->total, err);
    if (again == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < n; i++) {
        load_box(x, pairs[i].item, boxes[0]);
        pairs[i].key = hash_box(boxes[0], 2 * x->ndim);
    }
    const tie_context tie = {.index = x, .box_a = boxes[0], .box_b = boxes[1]};
    sort_pairs(pairs, scratch, n, compare_boxes, &tie);
    const fsdpck_status st = store_replicas(x, pairs, n, owner, again, err);
    if (st == FSDPCK_OK) {
        sort_replicas(x, pairs, scratch);
        uint32_t count = 0;
        for (uint32_t i = 0; i < x->total; i++)
            if (!again[i] && has_elements(x->cat, x->first_chunk + i))
                pairs[count++].item = i;
        x->count = count;
    }
    budget_free(owner, again, x->total);
    return st;
}

/* The dim along which the boxes are furthest apart, measured in boxes. */
static uint32_t widest_dim(const box_index *x, const sort_pair *pairs, size_t n)
{
    uint64_t box[2 * NDIM_MAX];
    uint64_t low[NDIM_MAX];
    uint64_t high[NDIM_MAX];
    double sizes[NDIM_MAX];
    for (size_t i = 0; i < n; i++) {
        load_box(x, pairs[i].item, box);
        for (uint32_t d = 0; d < x->ndim; d++) {
            if (i == 0 || box[d] < low[d])
                low[d] = box[d];
            if (i == 0 || box[d] > high[d])
                high[d] = box[d];
            sizes[d] = (i == 0 ? 0 : sizes[d]) + (double)box[x->ndim + d];
        }
    }
    uint32_t best = 0;
    double best_spread = -1;
    for (uint32_t d = 0; d < x->ndim; d++) {
        const double spread = (double)(high[d] - low[d]) * (double)n / sizes[d];
        if (spread > best_spread) {
            best = d;
            best_spread = spread;
        }
    }
    return best;
}

/* Splits [begin, end) of pairs at `middle` along the best dim. */
static void split_node(const box_index *x, sort_pair *pairs, size_t begin, size_t middle,
                       size_t end)
{
    uint64_t box[2 * NDIM_MAX];
    const uint32_t dim = widest_dim(x, pairs + begin, end - begin);
    bool sorted = true;
    for (size_t i = begin; i < end; i++) {
        load_box(x, pairs[i].item, box);
        pairs[i].key = box[dim] + box[x->ndim + dim] / 2;
        sorted = sorted && (i == begin || pairs[i].key >= pairs[i - 1].key);
    }
    if (!sorted)
        sort_select(pairs + begin, end - begin, middle - begin);
}

static void merge_bounds(const box_index *x, uint64_t *to, const uint64_t *from)
{
    for (uint32_t d = 0; d < x->ndim; d++) {
        if (from[d] < to[d])
            to[d] = from[d];
        if (from[x->ndim + d] > to[x->ndim + d])
            to[x->ndim + d] = from[x->ndim + d];
    }
}

static void fill_bounds(box_index *x)
{
    uint64_t box[2 * NDIM_MAX];
    const size_t stride = 2 * (size_t)x->ndim;
    for (uint32_t leaf = 0; leaf < x->leaves; leaf++) {
        uint64_t *b = x->bounds + (x->leaves + leaf) * stride;
        const uint32_t begin = box_index_leaf_begin(x, leaf);
        for (uint32_t i = begin; i < box_index_leaf_begin(x, leaf + 1); i++) {
            load_box(x, x->order[i], box);
            for (uint32_t d = 0; d < x->ndim; d++)
                box[x->ndim + d] += box[d];
            if (i == begin)
                memcpy(b, box, stride * sizeof *b);
            else
                merge_bounds(x, b, box);
        }
    }
    for (uint32_t node = x->leaves; --node > 0;) {
        uint64_t *b = x->bounds + node * stride;
        memcpy(b, b + node * stride, stride * sizeof *b);
        merge_bounds(x, b, x->bounds + (2 * (size_t)node + 1) * stride);
    }
}

static fsdpck_status build_tree(box_index *x, sort_pair *pairs, budget *owner, fsdpck_error *err)
{
    x->leaves = 2;
    while ((uint64_t)x->leaves * BOX_INDEX_LEAF < x->count)
        x->leaves *= 2;
    const uint64_t nbytes = 4 * (uint64_t)x->leaves * x->ndim * sizeof *x->bounds;
    x->bounds = budget_alloc(owner, nbytes, err);
    if (x->bounds == NULL) {
        x->leaves = 0;
        return FSDPCK_LIMIT;
    }
    for (uint32_t width = x->leaves; width > 1; width /= 2)
        for (uint32_t leaf = 0; leaf < x->leaves; leaf += width)
            split_node(x, pairs, box_index_leaf_begin(x, leaf),
                       box_index_leaf_begin(x, leaf + width / 2),
                       box_index_leaf_begin(x, leaf + width));
    for (uint32_t i = 0; i < x->count; i++)
        x->order[i] = pairs[i].item;
    fill_bounds(x);
    return FSDPCK_OK;
}

static fsdpck_status build(box_index *x, sort_pair *pairs, sort_pair *scratch, budget *owner,
                           fsdpck_error *err)
{
    size_t n = 0;
    for (uint32_t i = 0; i < x->total; i++)
        if (has_elements(x->cat, x->first_chunk + i))
            pairs[n++] = (sort_pair){0, i};
    x->empty_count = (uint32_t)(x->total - n);
    RETURN_IF(split_replicas(x, pairs, scratch, n, owner, err));
    x->order = budget_alloc(owner, (uint64_t)x->count * sizeof *x->order, err);
    if (x->order == NULL) {
        x->count = 0;
        return FSDPCK_LIMIT;
    }
    for (uint32_t i = 0; i < x->count; i++)
        x->order[i] = pairs[i].item;
    /* Boxes of 0-dim tensors are all equal, so they never need a tree. */
    if (x->count > BOX_INDEX_LEAF)
        return build_tree(x, pairs, owner, err);
    return FSDPCK_OK;
}

fsdpck_status box_index_build(box_index *x, const catalogue *cat, uint32_t tensor, budget *owner,
                              fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    *x = (box_index){.cat = cat,
                     .first_chunk = t->first_chunk,
                     .tensor = tensor,
                     .ndim = t->ndim,
                     .total = t->nchunks};
    const uint64_t nbytes = 2 * (uint64_t)x->total * sizeof(sort_pair);
    sort_pair *pairs = budget_alloc(owner, nbytes, err);
    if (pairs == NULL)
        return FSDPCK_LIMIT;
    const fsdpck_status st = build(x, pairs, pairs + x->total, owner, err);
    budget_free(owner, pairs, nbytes);
    if (st != FSDPCK_OK)
        box_index_release(x, owner);
    return st;
}

void box_index_release(box_index *x, budget *owner)
{
    if (x->order != NULL)
        budget_free(owner, x->order, (uint64_t)x->count * sizeof *x->order);
    if (x->bounds != NULL)
        budget_free(owner, x->bounds, 4 * (uint64_t)x->leaves * x->ndim * sizeof *x->bounds);
    if (x->replicas != NULL)
        budget_free(owner, x->replicas, (uint64_t)x->replica_count * sizeof *x->replicas);
    *x = (box_index){0};
}

static bool intersects(const uint64_t *bounds, const uint64_t *offsets, const uint64_t *sizes,
                       unsigned ndim)
{
    for (unsigned d = 0; d < ndim; d++)
        if (bounds[d] >= offsets[d] + sizes[d] || bounds[ndim + d] <= offsets[d])
            return false;
    return true;
}

void box_query_begin(box_query *q, const box_index *x, const uint64_t *offsets,
                     const uint64_t *sizes)
{
    q->index = x;
    q->cat = x->cat;
    q->want_offsets = offsets;
    q->want_sizes = sizes;
    q->ndim = x->ndim;
    q->next = 0;
    q->end = x->leaves == 0 ? x->count : 0;
    q->depth = 0;
    if (x->leaves != 0)
        q->stack[q->depth++] = 1;
}

void box_query_begin_scan(box_query *q, const catalogue *cat, uint32_t tensor,
                          const uint64_t *offsets, const uint64_t *sizes)
{
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    q->index = NULL;
    q->cat = cat;
    q->want_offsets = offsets;
    q->want_sizes = sizes;
    q->ndim = t->ndim;
    q->next = t->first_chunk;
    q->end = t->first_chunk + t->nchunks;
    q->depth = 0;
}

/* Descends to the next leaf that intersects the box; false at the end. */
static bool next_leaf(box_query *q)
{
    const box_index *x = q->index;
    while (q->depth > 0) {
        const uint32_t node = q->stack[--q->depth];
        if (!intersects(x->bounds + 2 * (size_t)node * q->ndim, q->want_offsets, q->want_sizes,
                        q->ndim))
            continue;
        if (node >= x->leaves) {
            q->next = box_index_leaf_begin(x, node - x->leaves);
            q->end = box_index_leaf_begin(x, node - x->leaves + 1);
            return true;
        }
        q->stack[q->depth++] = 2 * node + 1;
        q->stack[q->depth++] = 2 * node;
    }
    return false;
}

bool box_query_next(box_query *q)
{
    uint64_t offsets[NDIM_MAX];
    uint64_t sizes[NDIM_MAX];
    for (;;) {
        while (q->next < q->end) {
            const uint64_t at = q->next++;
            const uint64_t chunk =
                q->index == NULL ? at : q->index->first_chunk + q->index->order[at];
            if (q->index == NULL && !has_elements(q->cat, chunk))
                continue;
            catalogue_chunk_box(q->cat, chunk, offsets, sizes);
            if (box_intersect(offsets, sizes, q->want_offsets, q->want_sizes, q->ndim, q->offsets,
                              q->sizes)) {
                q->chunk = chunk;
                return true;
            }
        }
        if (q->index == NULL || !next_leaf(q))
            return false;
    }
}

char *box_text(char *text, size_t capacity_bytes, const uint64_t *offsets, const uint64_t *sizes,
               unsigned ndim)
{
    size_t at = 0;
    for (unsigned d = 0; d < ndim && at < capacity_bytes; d++) {
        const int n = snprintf(text + at, capacity_bytes - at, "%s%" PRIu64 ":%" PRIu64,
                               d == 0 ? "[" : ", ", offsets[d], offsets[d] + sizes[d]);
        at += n > 0 ? (size_t)n : 0;
    }
    if (at < capacity_bytes)
        (void)snprintf(text + at, capacity_bytes - at, ndim == 0 ? "[]" : "]");
    return text;
}
