/* Filling a tile: segments become reads; nearby reads are joined; boxes are copied to their
 * destinations. */

#include "exec/exec_internal.h"
#include "state/sort.h"

static dtype read_op_dtype(const read_op *q)
{
    return (dtype)q->from;
}

static element_ops read_op_convert(const read_op *q)
{
    return exec_element_ops(read_op_dtype(q), (dtype)q->to, q->ops);
}

static bool read_op_is_run(const read_op *q)
{
    return q->ndim == 0 && q->from == q->to && q->ops == 0;
}

/* Whether to read directly to its destination. */
static bool read_op_is_long_run(const read_op *q)
{
    return read_op_is_run(q) && q->span_bytes >= GATHER_RUN_NBYTES;
}

static fsdpck_status read_op_read(worker *w, const read_op *q, uint64_t begin, uint8_t *dst,
                                  uint64_t nbytes, fsdpck_error *err)
{
    const fsdpck_status st = worker_read(w, q->file, begin, dst, nbytes, err);
    if (st != FSDPCK_OK)
        exec_add_chunk_context(w->x, q->src_chunk, err);
    return st;
}

/* A separate run: directly to its destination, or through staging. */
static fsdpck_status read_run(worker *w, const read_op *q, fsdpck_error *err)
{
    uint8_t *dst = q->dst;
    if (w->place->direct)
        return read_op_read(w, q, q->src_offset_bytes, dst, q->span_bytes, err);
    for (uint64_t done = 0; done < q->span_bytes;) {
        const uint64_t left = q->span_bytes - done;
        const uint64_t n = left < w->x->staging_nbytes ? left : w->x->staging_nbytes;
        uint8_t *buffer;
        RETURN_IF(w->place->reserve(w, n, dst + done, 1, 3, &buffer, err));
        RETURN_IF(read_op_read(w, q, q->src_offset_bytes + done, buffer, n, err));
        w->place->run(w, dst + done, buffer, n);
        done += n;
    }
    return FSDPCK_OK;
}

/* From staging to the tile. */
static void read_op_copy(worker *w, const read_op *q, const uint8_t *src)
{
    if (read_op_is_run(q)) {
        w->place->run(w, q->dst, src, q->span_bytes);
        return;
    }
    const uint64_t *dims = w->gather.dims + q->dims_at;
    const element_ops c = read_op_convert(q);
    strided s;
    s.ndim = q->ndim;
    for (unsigned d = 0; d < q->ndim; d++) {
        s.sizes[d] = dims[d];
        s.src_strides[d] = dims[q->ndim + d];
        s.dst_strides[d] = dims[2 * q->ndim + d];
    }
    w->place->box(w, &c, &s, q->dst, src);
}

/* Rows apart from each other and matrices stored across need no long reads, see find_wide: less
 * staging is touched, and it stays in the caches. Devices take long copies. */
static uint64_t read_limit(const worker *w, uint64_t src_chunk)
{
    const struct exec *x = w->x;
    const uint32_t tensor = catalogue_chunk(plan_source(x->r.plan), src_chunk)->tensor;
    const unsigned flags = x->tensor_flags[tensor];
    const bool across = (flags & TENSOR_ACROSS) != 0;
    const bool is_long = (x->chunk_extents[src_chunk].flags & EXTENT_ROWS) ||
                         (flags & TENSOR_WIDE) || (across && x->engine->whole_tiles);
    const uint64_t limit = across ? GATHER_ACROSS_NBYTES : GATHER_APART_NBYTES;
    return is_long || x->staging_nbytes < limit ? x->staging_nbytes : limit;
}

/* Whether to read an operation together with those before it, which read [begin, end). */
static bool read_op_joins(const worker *w, const read_op *first, const read_op *q, uint64_t begin,
                          uint64_t end)
{
    const uint64_t q_end = q->src_offset_bytes + q->span_bytes;
    const uint64_t limit =
        q->src_offset_bytes < end ? w->x->staging_nbytes : read_limit(w, first->src_chunk);
    return !read_op_is_long_run(q) && q->file == first->file &&
           q->src_offset_bytes <= end + GATHER_GAP_NBYTES &&
           (q_end > end ? q_end : end) - begin <= limit;
}

/* Reads operations [i, j) of the sorted list in one go. */
static fsdpck_status read_together(worker *w, const sort_pair *sorted, unsigned i, unsigned j,
                                   uint64_t begin, uint64_t end, fsdpck_error *err)
{
    gather *g = &w->gather;
    const read_op *first = &g->read_ops[sorted[i].item];
    uint8_t *buffer;
    unsigned dims = 0;
    if (j - i == 1 && read_op_is_run(first))
        return read_run(w, first, err);
    for (unsigned k = i; !w->place->direct && k < j; k++)
        dims += 3u * g->read_ops[sorted[k].item].ndim;
    const bool copies = first->from == first->to && first->ops == 0;
    RETURN_IF(
        w->place->reserve(w, end - begin, copies ? first->dst : NULL, j - i, dims, &buffer, err));
    RETURN_IF(read_op_read(w, first, begin, buffer, end - begin, err));
    for (; i < j; i++) {
        const read_op *q = &g->read_ops[sorted[i].item];
        read_op_copy(w, q, buffer + (q->src_offset_bytes - begin));
    }
    return FSDPCK_OK;
}

fsdpck_status gather_flush(worker *w, fsdpck_error *err)
{
    gather *g = &w->gather;
    sort_pair *sorted = g->sorted;
    const unsigned count = g->count;
    for (unsigned i = 0; i < count; i++)
        sorted[i] = (sort_pair){g->read_ops[i].src_offset_bytes, i};
    sort_pairs(sorted, sorted + GATHER_READ_OPS, count, NULL, NULL);
    for (unsigned i = 0; i < count; i++)
        sorted[i].key = g->read_ops[sorted[i].item].file;
    sort_pairs(sorted, sorted + GATHER_READ_OPS, count, NULL, NULL);

    unsigned i = 0;
    while (i < count) {
        const read_op *first = &g->read_ops[sorted[i].item];
        const uint64_t begin = first->src_offset_bytes;
        uint64_t end = begin + first->span_bytes;
        unsigned j = i + 1;
        for (; j < count && !read_op_is_long_run(first); j++) {
            const read_op *q = &g->read_ops[sorted[j].item];
            if (!read_op_joins(w, first, q, begin, end))
                break;
            if (q->src_offset_bytes + q->span_bytes > end)
                end = q->src_offset_bytes + q->span_bytes;
        }
        RETURN_IF(read_together(w, sorted, i, j, begin, end, err));
        i = j;
    }
    g->count = 0;
    g->dims_count = 0;
    return FSDPCK_OK;
}

/* A new read operation with room for its dims. */
static fsdpck_status read_op_new(worker *w, unsigned ndim, read_op **q, fsdpck_error *err)
{
    gather *g = &w->gather;
    if (g->count == GATHER_READ_OPS || g->dims_count + 3 * ndim > GATHER_DIMS)
        RETURN_IF(gather_flush(w, err));
    g->touched = true;
    *q = &g->read_ops[g->count++];
    (*q)->ndim = (uint8_t)ndim;
    (*q)->dims_at = g->dims_count;
    g->dims_count += 3 * ndim;
    return FSDPCK_OK;
}

/* One run on both sides: long ones are read at once, short ones wait for neighbors; a run that
 * goes on where the last one ended, on both sides, becomes part of it. */
static fsdpck_status add_run(worker *w, const read_op *run, fsdpck_error *err)
{
    gather *g = &w->gather;
    if (g->count > 0) {
        read_op *last = &g->read_ops[g->count - 1];
        if (read_op_is_run(last) && last->file == run->file &&
            last->src_offset_bytes + last->span_bytes == run->src_offset_bytes &&
            last->dst + last->span_bytes == run->dst) {
            last->span_bytes += run->span_bytes;
            return FSDPCK_OK;
        }
        if (read_op_is_long_run(last)) {
            const read_op whole = *last;
            g->count--;
            RETURN_IF(read_run(w, &whole, err));
        }
    }
    read_op *q;
    RETURN_IF(read_op_new(w, 0, &q, err));
    const uint32_t dims_at = q->dims_at;
    *q = *run;
    q->dims_at = dims_at;
    return FSDPCK_OK;
}

/* Splits a box to fit staging. */
static void begin_split(worker *w, const read_op *box, const strided *s, uint64_t itemsize)
{
    const uint64_t limit = read_limit(w, box->src_chunk);
    const bool is_limited = limit < w->x->staging_nbytes;
    const bool across = is_limited && exec_is_across(w->x, box->src_chunk);
    const uint64_t most =
        w->x->staging_nbytes < GATHER_APART_NBYTES ? w->x->staging_nbytes : GATHER_APART_NBYTES;
    /* Half a read, so that the rows between those of this box are read with them. */
    box_split_begin(&w->split, s->ndim, s->sizes, s->src_strides, itemsize,
                    is_limited && !across ? limit / 2 : limit);
    if (across)
        box_split_fit_blocks(&w->split, most);
}

/* A box that is no run, or whose elements are converted: split to fit staging. */
static fsdpck_status add_box(worker *w, const read_op *box, strided *s, fsdpck_error *err)
{
    gather *g = &w->gather;
    const uint64_t itemsize = dtype_get(read_op_dtype(box))->itemsize_bytes;
    box_split *b = &w->split;
    if (!g->grouped && gather_should_read_runs(w, s, itemsize)) {
        const element_ops c = read_op_convert(box);
        return gather_runs(w, box, &c, s, err);
    }
    begin_split(w, box, s, itemsize);
    const uint64_t count = box_split_count(b);
    for (uint64_t i = 0; box_split_next(b); i++) {
        if (!gather_is_own(w, box->src_chunk, i, count))
            continue;
        read_op *q;
        RETURN_IF(read_op_new(w, s->ndim, &q, err));
        const uint32_t dims_at = q->dims_at;
        uint64_t *dims = g->dims + dims_at;
        *q = *box;
        q->ndim = (uint8_t)s->ndim;
        q->dims_at = dims_at;
        q->src_offset_bytes += b->offset_bytes;
        q->span_bytes = b->span_bytes;
        for (unsigned d = 0; d < s->ndim; d++) {
            q->dst += b->at[d] * s->dst_strides[d];
            dims[d] = b->part[d];
            dims[s->ndim + d] = s->src_strides[d];
            dims[2 * s->ndim + d] = s->dst_strides[d];
        }
    }
    return FSDPCK_OK;
}

fsdpck_status gather_segment_to(worker *w, const segment_walk *seg, dtype to, int64_t dst_at,
                                const uint64_t *dst_strides, fsdpck_error *err)
{
    struct exec *x = w->x;
    const chunk_extent *where = &x->chunk_extents[seg->src_chunk];
    const dtype from = exec_chunk_dtype(x, seg->src_chunk);
    const uint64_t from_size = dtype_get(from)->itemsize_bytes;
    const uint64_t to_size = dtype_get(to)->itemsize_bytes;
    strided *s = &w->shape;
    read_op q = {.src_offset_bytes = where->offset_bytes,
                 .dst = w->gather.base + dst_at,
                 .file = where->file,
                 .src_chunk = (uint32_t)seg->src_chunk,
                 .from = (uint8_t)from,
                 .to = (uint8_t)to,
                 .ops = (uint8_t)(where->flags & EXTENT_OPS)};
    if ((where->flags & (EXTENT_STREAM | EXTENT_BOXES)) == EXTENT_STREAM)
        return FSDPCK_OK;
    exec_chunk_strides(x, seg->src_chunk, w->src_strides);
    s->ndim = seg->ndim;
    for (unsigned d = 0; d < seg->ndim; d++) {
        s->sizes[d] = seg->sizes[d];
        s->src_strides[d] = w->src_strides[d] * from_size;
        s->dst_strides[d] = dst_strides[d] * to_size;
        q.src_offset_bytes += seg->src_offsets[d] * s->src_strides[d];
    }
    if (where->flags & EXTENT_BOXES) {
        const element_ops c = read_op_convert(&q);
        return gather_boxes(w, seg, &c, dst_at, s->dst_strides, err);
    }
    strided_collapse(s);
    q.span_bytes = seg->nelems * from_size;
    if (strided_is_run(s, from_size, to_size) && from == to && q.ops == 0)
        return gather_is_own(w, seg->src_chunk, 0, 1) ? add_run(w, &q, err) : FSDPCK_OK;
    if (s->ndim == 0) { /* one element that changes */
        s->ndim = 1;
        s->sizes[0] = 1;
        s->src_strides[0] = from_size;
        s->dst_strides[0] = to_size;
    }
    return add_box(w, &q, s, err);
}

fsdpck_status gather_segment(worker *w, const segment_walk *seg, dtype to, int64_t chunk_at,
                             fsdpck_error *err)
{
    const uint64_t to_size = dtype_get(to)->itemsize_bytes;
    return gather_segment_to(w, seg, to, chunk_at + (int64_t)(seg->dst_first * to_size),
                             seg->dst_strides, err);
}

/* Rows split by the tile's edges are read whole if the source is stored across them: their elements
 * are in the same runs as their neighbors', and would otherwise be separate reads. Not for casts,
 * where overflows must be counted once. */
static uint64_t row_to_complete(const struct exec *x, const segment_walk *seg, uint64_t itemsize)
{
    const unsigned flags = x->tensor_flags[seg->src_tensor];
    for (unsigned d = 0; (flags & (TENSOR_WIDE | TENSOR_ACROSS)) && d < seg->ndim; d++)
        if (seg->dst_strides[d] <= TILE_MARGIN / itemsize)
            return seg->dst_strides[d];
    return 1;
}

void gather_walk_begin(const struct exec *x, segment_walk *seg, uint64_t chunk, bool grouped,
                       uint64_t first_elem, uint64_t end_elem)
{
    const catalogue *to = &x->r.target->cat;
    const dtype d = (dtype)catalogue_tensor(to, catalogue_chunk(to, chunk)->tensor)->dtype;
    segment_walk_begin(seg, x->r.plan, chunk, first_elem, end_elem);
    const dtype from = (dtype)catalogue_tensor(plan_source(x->r.plan), seg->src_tensor)->dtype;
    const uint64_t row =
        from != d || grouped ? 1 : row_to_complete(x, seg, dtype_get(d)->itemsize_bytes);
    if (row > 1)
        segment_walk_begin(seg, x->r.plan, chunk, first_elem / row * row,
                           (end_elem + row - 1) / row * row);
}

fsdpck_status gather_elements(worker *w, uint64_t chunk, uint64_t first_elem, uint64_t end_elem,
                              int64_t chunk_at, fsdpck_error *err)
{
    struct exec *x = w->x;
    const catalogue *to = &x->r.target->cat;
    const dtype d = (dtype)catalogue_tensor(to, catalogue_chunk(to, chunk)->tensor)->dtype;
    segment_walk *seg = &w->walk;
    gather_walk_begin(x, seg, chunk, w->gather.grouped, first_elem, end_elem);
    while (segment_walk_next(seg))
        RETURN_IF(w->segment(w, seg, d, chunk_at, err));
    return FSDPCK_OK;
}

fsdpck_status gather_range(worker *w, const output_range *range, fsdpck_error *err)
{
    range_walk walk;
    range_part part;
    range_walk_begin(&walk, w->x->r.plan, range);
    while (range_walk_next(&walk, &part))
        if (part.kind == RANGE_PART_CHUNK)
            RETURN_IF(gather_elements(
                w, part.chunk, part.first_elem, part.end_elem,
                (int64_t)part.chunk_begin - (int64_t)range->begin + (int64_t)w->at, err));
    return gather_flush(w, err);
}
