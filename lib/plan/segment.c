#include "plan/segment.h"

#include <string.h>

#include "plan/plan_internal.h"

const box_index *plan_index_of(const plan *p, uint32_t source_tensor)
{
    const uint32_t at = p->index_of[source_tensor];
    return at >= INDEX_SCAN ? NULL : VEC_AT(&p->indexes, box_index, at);
}

void plan_query_begin(const plan *p, uint32_t source_tensor, box_query *q, const uint64_t *offsets,
                      const uint64_t *sizes)
{
    const box_index *x = plan_index_of(p, source_tensor);
    if (x != NULL)
        box_query_begin(q, x, offsets, sizes);
    else
        box_query_begin_scan(q, p->from, source_tensor, offsets, sizes);
}

uint64_t plan_item_count(const plan *p)
{
    return p->file_item[p->file_count];
}

uint64_t plan_tile_nbytes(const plan *p)
{
    return p->opt.tile_nbytes;
}

void plan_get_item(const plan *p, uint64_t item, output_range *range)
{
    uint64_t low = 0;
    uint64_t high = p->file_count;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (p->file_item[middle] <= item)
            low = middle;
        else
            high = middle;
    }
    const uint64_t nbytes = catalogue_file(&p->to->cat, low)->nbytes;
    range->file = (uint32_t)low;
    range->begin = (item - p->file_item[low]) * p->opt.tile_nbytes;
    range->end =
        nbytes - range->begin < p->opt.tile_nbytes ? nbytes : range->begin + p->opt.tile_nbytes;
}

static const cat_chunk *ordered_chunk(const plan *p, uint64_t order)
{
    return catalogue_chunk(&p->to->cat, p->order[order]);
}

static uint64_t chunk_end(const plan *p, uint64_t order)
{
    return ordered_chunk(p, order)->offset_bytes + ordered_chunk(p, order)->nbytes;
}

static uint64_t constant_end(const plan *p, uint64_t i)
{
    return constant_at(p->to, i)->offset_bytes + constant_at(p->to, i)->nbytes;
}

static uint64_t deferred_end(const plan *p, uint64_t i)
{
    return deferred_at(p->to, i)->offset_bytes + deferred_at(p->to, i)->nbytes;
}

/* The first item of a file that ends after `at`. They do not overlap, so their ends also ascend. */
static uint64_t first_after(const plan *p, const uint64_t *of_file, uint64_t at,
                            uint64_t (*end_of)(const plan *p, uint64_t i))
{
    uint64_t low = of_file[0];
    uint64_t high = of_file[1];
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (end_of(p, middle) <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t first_chunk_after(const plan *p, uint32_t file, uint64_t at)
{
    return first_after(p, p->file_order + file, at, chunk_end);
}

uint64_t plan_first_alias(const plan *p, uint64_t target_chunk)
{
    const cat_chunk *k = catalogue_chunk(&p->to->cat, target_chunk);
    return p->order[first_chunk_after(p, k->file, k->offset_bytes)];
}

bool plan_has_alias(const plan *p, uint64_t target_chunk)
{
    const cat_chunk *k = catalogue_chunk(&p->to->cat, target_chunk);
    const uint64_t next = first_chunk_after(p, k->file, k->offset_bytes) + 1;
    return next < p->file_order[k->file + 1] &&
           ordered_chunk(p, next)->offset_bytes == k->offset_bytes;
}

void range_walk_begin(range_walk *w, const plan *p, const output_range *range)
{
    *w = (range_walk){
        .plan = p,
        .range = *range,
        .order = first_chunk_after(p, range->file, range->begin),
        .order_end = p->file_order[range->file + 1],
        .constant = first_after(p, p->file_constant + range->file, range->begin, constant_end),
        .constant_end = p->file_constant[range->file + 1],
        .deferred = first_after(p, p->file_deferred + range->file, range->begin, deferred_end),
        .deferred_end = p->file_deferred[range->file + 1]};
}

static uint64_t clip_begin(const range_walk *w, uint64_t at)
{
    return at > w->range.begin ? at : w->range.begin;
}

static uint64_t clip_end(const range_walk *w, uint64_t at)
{
    return at < w->range.end ? at : w->range.end;
}

static void set_chunk_part(range_walk *w, const cat_chunk *k, range_part *part)
{
    const plan *p = w->plan;
    const dtype d = (dtype)catalogue_tensor(&p->to->cat, k->tensor)->dtype;
    const uint64_t itemsize = dtype_get(d)->itemsize_bytes;
    *part = (range_part){.begin = clip_begin(w, k->offset_bytes),
                         .end = clip_end(w, k->offset_bytes + k->nbytes),
                         .chunk = p->order[w->order],
                         .chunk_begin = k->offset_bytes};
    part->first_elem = (part->begin - k->offset_bytes) / itemsize;
    part->end_elem = (part->end - k->offset_bytes + itemsize - 1) / itemsize;
    w->last_begin = k->offset_bytes;
    w->last_end = k->offset_bytes + k->nbytes;
    w->order++;
}

static void set_constant_part(range_walk *w, const target_constant *l, range_part *part)
{
    *part = (range_part){.kind = RANGE_PART_CONSTANT,
                         .begin = clip_begin(w, l->offset_bytes),
                         .end = clip_end(w, l->offset_bytes + l->nbytes)};
    part->constant = w->plan->to->text.text + l->text_at + (part->begin - l->offset_bytes);
    w->constant++;
}

/* Skips aliases of the last chunk. */
static const cat_chunk *next_chunk(range_walk *w)
{
    for (; w->order < w->order_end; w->order++) {
        const cat_chunk *k = ordered_chunk(w->plan, w->order);
        if (k->offset_bytes != w->last_begin || k->offset_bytes + k->nbytes != w->last_end)
            return k;
    }
    return NULL;
}

bool range_walk_next(range_walk *w, range_part *part)
{
    const plan *p = w->plan;
    const cat_chunk *k = next_chunk(w);
    const uint64_t constant =
        w->constant < w->constant_end ? constant_at(p->to, w->constant)->offset_bytes : UINT64_MAX;
    const uint64_t deferred =
        w->deferred < w->deferred_end ? deferred_at(p->to, w->deferred)->offset_bytes : UINT64_MAX;
    const uint64_t chunk = k != NULL ? k->offset_bytes : UINT64_MAX;
    const uint64_t other = constant < deferred ? constant : deferred;
    if ((chunk < other ? chunk : other) >= w->range.end)
        return false;
    if (chunk < other) {
        set_chunk_part(w, k, part);
    } else if (constant < deferred) {
        set_constant_part(w, constant_at(p->to, w->constant), part);
    } else {
        *part =
            (range_part){.kind = RANGE_PART_DEFERRED,
                         .deferred = w->deferred,
                         .begin = clip_begin(w, deferred),
                         .end = clip_end(w, deferred + deferred_at(p->to, w->deferred)->nbytes)};
        w->deferred++;
    }
    return true;
}

void segment_walk_begin(segment_walk *s, const plan *p, uint64_t target_chunk, uint64_t first_elem,
                        uint64_t end_elem)
{
    const catalogue *to = &p->to->cat;
    const uint32_t tensor = catalogue_chunk(to, target_chunk)->tensor;
    s->plan = p;
    s->ndim = catalogue_tensor(to, tensor)->ndim;
    s->src_tensor = plan_source_tensor(p, tensor);
    s->cutting = false;
    catalogue_chunk_box(to, target_chunk, s->dst_offsets, s->dst_sizes);
    box_row_major_strides(s->dst_sizes, s->ndim, s->dst_strides);
    memset(&s->cut, 0, sizeof s->cut);
    s->cut.sizes = s->dst_sizes;
    s->cut.ndim = s->ndim;
    s->cut.begin = first_elem;
    s->cut.end = end_elem;
}

bool segment_walk_next(segment_walk *s)
{
    for (;;) {
        if (s->cutting && box_query_next(&s->query))
            break;
        if (!box_cut_next(&s->cut))
            return false;
        for (unsigned d = 0; d < s->ndim; d++)
            s->box_offsets[d] = s->dst_offsets[d] + s->cut.offsets_out[d];
        plan_query_begin(s->plan, s->src_tensor, &s->query, s->box_offsets, s->cut.sizes_out);
        s->cutting = true;
    }
    s->src_chunk = s->query.chunk;
    s->dst_first = 0;
    s->nelems = 1;
    catalogue_chunk_box(s->plan->from, s->src_chunk, s->src_offsets, NULL);
    for (unsigned d = 0; d < s->ndim; d++) {
        s->src_offsets[d] = s->query.offsets[d] - s->src_offsets[d];
        s->sizes[d] = s->query.sizes[d];
        s->dst_first += (s->query.offsets[d] - s->dst_offsets[d]) * s->dst_strides[d];
        s->nelems *= s->sizes[d];
    }
    return true;
}

uint32_t plan_source_tensor(const plan *p, uint32_t target_tensor)
{
    return *VEC_AT(&p->to->from, const uint32_t, target_tensor);
}

const catalogue *plan_source(const plan *p)
{
    return p->from;
}

const target *plan_target(const plan *p)
{
    return p->to;
}

plan_replicas plan_replica_policy(const plan *p)
{
    return p->opt.replicas;
}

bool plan_uses_tensor(const plan *p, uint32_t source_tensor)
{
    return p->index_of[source_tensor] != INDEX_UNSEEN;
}

const box_replica *plan_replicas_of(const plan *p, uint32_t source_tensor, uint32_t *count)
{
    const box_index *x =
        plan_uses_tensor(p, source_tensor) ? plan_index_of(p, source_tensor) : NULL;
    *count = x == NULL ? 0 : x->replica_count;
    return x == NULL ? NULL : x->replicas;
}

uint64_t plan_order_count(const plan *p)
{
    return p->order_count;
}

uint64_t plan_ordered_chunk(const plan *p, uint64_t order)
{
    return p->order[order];
}
