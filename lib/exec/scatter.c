/* Source-driven items: chunks that can only be decoded sequentially are written row block by row
 * block to the locations of their elements, after all tiles. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec_internal.h"
#include "exec/row_block.h"
#include "state/sort.h"

/* Shorter runs are merged into the output by reading, modifying and writing a whole range. */
#define SCATTER_RUN_NBYTES ((uint64_t)4 << 10)
/* Decoded at a time of a chunk that is row-major: it stays in the caches. Others, whose short runs are
 * merged, take as much as fits, since each part is merged into the same range. */
#define SCATTER_NBYTES ((uint64_t)256 << 10)
#define SCATTER_LOCKS  64u

/* Target tensors fed by streams. */
typedef struct scatter_target {
    uint32_t source_tensor;
    uint32_t target_tensor;
    bool indexed;
    box_index index;
} scatter_target;

typedef struct scatter {
    struct exec *x;
    vec targets; /* scatter_target, by source tensor */
    /* A lock per target chunk: shared by writers of whole runs, exclusive for merging a range. */
    pthread_rwlock_t locks[SCATTER_LOCKS];
} scatter;

static fsdpck_status add_target(scatter *sc, uint32_t tensor, fsdpck_error *err)
{
    struct exec *x = sc->x;
    const catalogue *to = &x->r.target->cat;
    scatter_target *t = vec_push(&sc->targets, err);
    if (t == NULL)
        return FSDPCK_LIMIT;
    t->source_tensor = plan_source_tensor(x->r.plan, tensor);
    t->target_tensor = tensor;
    if (catalogue_tensor(to, tensor)->nchunks <= BOX_INDEX_LEAF)
        return FSDPCK_OK;
    RETURN_IF(box_index_build(&t->index, to, tensor, x->r.metadata, err));
    /* An index gives one of several equal boxes, and here each must be written. */
    if (t->index.replica_count > 0)
        box_index_release(&t->index, x->r.metadata);
    else
        t->indexed = true;
    return FSDPCK_OK;
}

static int compare_targets(const void *a, const void *b)
{
    const scatter_target *one = a;
    const scatter_target *two = b;
    ORDER_BY(one->source_tensor, two->source_tensor);
    return (one->target_tensor > two->target_tensor) - (one->target_tensor < two->target_tensor);
}

static fsdpck_status list_targets(scatter *sc, fsdpck_error *err)
{
    struct exec *x = sc->x;
    for (uint64_t t = 0; t < catalogue_tensor_count(&x->r.target->cat); t++)
        if (x->tensor_flags[plan_source_tensor(x->r.plan, (uint32_t)t)] & TENSOR_STREAMED)
            RETURN_IF(add_target(sc, (uint32_t)t, err));
    qsort(sc->targets.items, sc->targets.count, sizeof(scatter_target), compare_targets);
    return FSDPCK_OK;
}

static size_t first_target(const scatter *sc, uint32_t source_tensor)
{
    size_t low = 0;
    size_t high = sc->targets.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (VEC_AT(&sc->targets, scatter_target, middle)->source_tensor < source_tensor)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Bytes that lie in a row in the destination. */
static uint64_t target_run_nbytes(const strided *s, uint64_t itemsize)
{
    uint64_t run = itemsize;
    for (unsigned d = s->ndim; d-- > 0 && s->dst_strides[d] == run;)
        run *= s->sizes[d];
    return run;
}

/* Writes one part of the box through the worker's tile, dense or after reading the gaps; without
 * output, adds it directly to the digest. */
static fsdpck_status write_part(worker *w, const element_ops *c, const strided *s,
                                const box_split *part, const uint8_t *src, uint64_t target_chunk,
                                uint64_t at, bool merge, fsdpck_error *err)
{
    const cat_chunk *k = catalogue_chunk(&w->x->r.target->cat, target_chunk);
    const range_part range = {.begin = at,
                              .end = at + part->span_bytes,
                              .chunk = target_chunk,
                              .chunk_begin = k->offset_bytes};
    strided shape;
    shape.ndim = s->ndim;
    for (unsigned d = 0; d < s->ndim; d++) {
        src += part->at[d] * s->src_strides[d];
        shape.sizes[d] = part->part[d];
        shape.src_strides[d] = s->src_strides[d];
        shape.dst_strides[d] = s->dst_strides[d];
    }
    strided_collapse(&shape);
    const uint64_t itemsize = dtype_get(c->to)->itemsize_bytes;
    const bool direct = !merge && w->x->out != NULL && write_range_is_direct(w->x, k->file);
    /* At its place in a block, for direct writes. */
    uint8_t *to = w->tile + at % FILE_DIRECT_ALIGN;
    const uint8_t *bytes = to;
    if (merge && w->x->out == NULL)
        memset(to, 0, part->span_bytes);
    else if (merge)
        RETURN_IF(output_read_at(w->x->out, k->file, at, to, part->span_bytes, err));
    if (!element_ops_is_copy(c))
        w->stats.cast_overflows += element_ops_box(c, &shape, to, src, w->scratch);
    else if (!merge && !direct && strided_is_run(&shape, itemsize, itemsize))
        bytes = src;
    else
        strided_copy(&shape, itemsize, to, src);
    if (w->x->out == NULL) {
        exec_checksums_add_sparse(w->x, &range, bytes);
        return FSDPCK_OK;
    }
    if (direct)
        return write_range(
            w, &(output_range){.file = k->file, .begin = at, .end = at + part->span_bytes}, to,
            err);
    w->stats.bytes_written += part->span_bytes;
    return output_write_at(w->x->out, k->file, at, bytes, part->span_bytes, err);
}

static fsdpck_status write_box(scatter *sc, worker *w, const element_ops *c, const strided *s,
                               const uint8_t *src, uint64_t target_chunk, uint64_t dst_at,
                               fsdpck_error *err)
{
    const cat_chunk *k = catalogue_chunk(&sc->x->r.target->cat, target_chunk);
    const uint64_t itemsize = dtype_get(c->to)->itemsize_bytes;
    const uint64_t tile = sc->x->tile_nbytes;
    const uint64_t run = target_run_nbytes(s, itemsize);
    const bool merge = run < SCATTER_RUN_NBYTES && run < strided_nelems(s) * itemsize;
    pthread_rwlock_t *lock = &sc->locks[target_chunk % SCATTER_LOCKS];
    box_split part;
    fsdpck_status st = FSDPCK_OK;
    box_split_begin(&part, s->ndim, s->sizes, s->dst_strides, itemsize,
                    merge || run > tile ? tile : run);
    if (merge)
        pthread_rwlock_wrlock(lock);
    else
        pthread_rwlock_rdlock(lock);
    while (st == FSDPCK_OK && box_split_next(&part))
        st = write_part(w, c, s, &part, src, target_chunk,
                        k->offset_bytes + dst_at + part.offset_bytes, merge, err);
    pthread_rwlock_unlock(lock);
    return st;
}

/* Where the row block and a target chunk meet. `offsets`: of the row block's first element, in the tensor. */
static fsdpck_status write_intersecting(scatter *sc, worker *w, const row_block_reader *row_block,
                                        const uint64_t *offsets, const box_query *q,
                                        fsdpck_error *err)
{
    struct exec *x = sc->x;
    const catalogue *to = &x->r.target->cat;
    const dtype type = (dtype)catalogue_tensor(to, catalogue_chunk(to, q->chunk)->tensor)->dtype;
    const element_ops c = exec_chunk_convert(x, row_block->chunk, type);
    uint64_t chunk_offsets[NDIM_MAX];
    uint64_t chunk_sizes[NDIM_MAX];
    uint64_t dst_strides[NDIM_MAX];
    strided s;
    const uint8_t *src = w->staging;
    uint64_t dst_at = 0;
    if (!exec_file_is_own(x, catalogue_chunk(to, q->chunk)->file))
        return FSDPCK_OK;
    catalogue_chunk_box(to, q->chunk, chunk_offsets, chunk_sizes);
    box_row_major_strides(chunk_sizes, row_block->ndim, dst_strides);
    s.ndim = row_block->ndim;
    for (unsigned d = 0; d < row_block->ndim; d++) {
        s.sizes[d] = q->sizes[d];
        s.src_strides[d] = row_block->strides[d];
        s.dst_strides[d] = dst_strides[d] * dtype_get(type)->itemsize_bytes;
        src += (q->offsets[d] - offsets[d]) * s.src_strides[d];
        dst_at += (q->offsets[d] - chunk_offsets[d]) * s.dst_strides[d];
    }
    strided_collapse(&s);
    return write_box(sc, w, &c, &s, src, q->chunk, dst_at, err);
}

static fsdpck_status write_row_block(scatter *sc, worker *w, const row_block_reader *row_block,
                                     uint32_t tensor, const uint64_t *chunk_offsets,
                                     fsdpck_error *err)
{
    uint64_t offsets[NDIM_MAX];
    box_query q;
    for (unsigned d = 0; d < row_block->ndim; d++)
        offsets[d] = chunk_offsets[d] + row_block->split.at[d];
    for (size_t i = first_target(sc, tensor); i < sc->targets.count; i++) {
        const scatter_target *t = VEC_AT(&sc->targets, scatter_target, i);
        if (t->source_tensor != tensor)
            break;
        if (t->indexed)
            box_query_begin(&q, &t->index, offsets, row_block->split.part);
        else
            box_query_begin_scan(&q, &sc->x->r.target->cat, t->target_tensor, offsets,
                                 row_block->split.part);
        while (box_query_next(&q))
            RETURN_IF(write_intersecting(sc, w, row_block, offsets, &q, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status scatter_job(void *ctx, unsigned worker_index, uint64_t job, fsdpck_error *err)
{
    scatter *sc = ctx;
    struct exec *x = sc->x;
    worker *w = x->workers[worker_index];
    const catalogue *from = plan_source(x->r.plan);
    const uint64_t chunk = *VEC_AT(&x->streams, uint64_t, job);
    const uint32_t tensor = catalogue_chunk(from, chunk)->tensor;
    uint64_t chunk_offsets[NDIM_MAX];
    row_block_reader row_block;
    bool more = true;
    catalogue_chunk_box(from, chunk, chunk_offsets, NULL);
    const bool rows = (x->chunk_extents[chunk].flags & EXTENT_ROWS) != 0;
    const uint64_t limit =
        rows && x->staging_nbytes > SCATTER_NBYTES ? SCATTER_NBYTES : x->staging_nbytes;
    RETURN_IF(row_block_open(&row_block, w, chunk, limit, err));
    fsdpck_status st = FSDPCK_OK;
    while (st == FSDPCK_OK && more) {
        st = cancel_check(x->r.cancel, err);
        if (st == FSDPCK_OK)
            st = row_block_next(&row_block, w->staging, &more, err);
        if (st == FSDPCK_OK && more)
            st = write_row_block(sc, w, &row_block, tensor, chunk_offsets, err);
        progress_add(x->r.progress, more ? row_block.split.span_bytes : 0);
    }
    return row_block_close(&row_block, st, err);
}

/* Checksums of data written by streams, read back. */
static fsdpck_status sum_item(void *ctx, unsigned worker_index, uint64_t item, fsdpck_error *err)
{
    struct exec *x = ctx;
    worker *w = x->workers[worker_index];
    output_range whole;
    plan_get_item(x->r.plan, item, &whole);
    if (!exec_file_is_own(x, whole.file))
        return FSDPCK_OK;
    output_range range = whole;
    for (; range.begin < whole.end; range.begin = range.end) {
        range_walk walk;
        range_part part;
        uint64_t raw;
        range.end =
            whole.end - range.begin < x->step_nbytes ? whole.end : range.begin + x->step_nbytes;
        range_walk_begin(&walk, x->r.plan, &range);
        while (range_walk_next(&walk, &part)) {
            if (part.kind != RANGE_PART_CHUNK || !exec_chunk_is_streamed(x, part.chunk))
                continue;
            RETURN_IF(output_read_at(x->out, range.file, part.begin, w->tile, part.end - part.begin,
                                     err));
            (void)exec_checksums_add(x, &part, w->tile, &raw);
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status run_jobs(scatter *sc, fsdpck_error *err)
{
    struct exec *x = sc->x;
    uint64_t nbytes = 0;
    for (size_t i = 0; i < x->streams.count; i++)
        nbytes +=
            catalogue_chunk(plan_source(x->r.plan), *VEC_AT(&x->streams, uint64_t, i))->nbytes;
    progress_phase(x->r.progress, "decoding", nbytes);
    RETURN_IF(list_targets(sc, err));
    RETURN_IF(pool_run(x->stream_workers, x->streams.count, scatter_job, sc, x->r.cancel, err));
    if (!exec_checksums_wanted(x) || x->out == NULL)
        return FSDPCK_OK;
    return pool_run(x->nworkers, plan_item_count(x->r.plan), sum_item, x, x->r.cancel, err);
}

fsdpck_status scatter_run(struct exec *x, fsdpck_error *err)
{
    if (x->streams.count == 0)
        return FSDPCK_OK;
    scatter sc = {.x = x, .targets = VEC_OF(scatter_target, x->r.metadata)};
    for (unsigned i = 0; i < SCATTER_LOCKS; i++)
        pthread_rwlock_init(&sc.locks[i], NULL);
    const fsdpck_status st = run_jobs(&sc, err);
    for (unsigned i = 0; i < SCATTER_LOCKS; i++)
        pthread_rwlock_destroy(&sc.locks[i]);
    for (size_t i = 0; i < sc.targets.count; i++) {
        scatter_target *t = VEC_AT(&sc.targets, scatter_target, i);
        if (t->indexed)
            box_index_release(&t->index, x->r.metadata);
    }
    vec_release(&sc.targets);
    return st;
}
