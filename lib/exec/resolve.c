/* Locates the elements of every needed chunk, before anything is written. */
#include <inttypes.h>

#include "base/checked.h"
#include "exec/exec_internal.h"
#include "state/sort.h"

/* Headers per job: enough to make the overhead of a job negligible. */
#define RESOLVE_BATCH 64u
/* Up to this many column shards, reads within a step are long enough. */
#define WIDE_CHUNKS 16u

typedef struct resolve_work {
    struct exec *x;
    const sort_pair *chunks; /* in the order of the files */
    uint64_t count;
} resolve_work;

static bool strides_are_rows(const uint64_t *strides, const uint64_t *sizes, unsigned ndim)
{
    uint64_t rows[NDIM_MAX];
    box_row_major_strides(sizes, ndim, rows);
    for (unsigned d = 0; d < ndim; d++)
        if (sizes[d] != 1 && strides[d] != rows[d])
            return false;
    return true;
}

/* A reader's location is checked again before it becomes an address. */
static bool place_fits(const catalogue *from, const place *where, const uint64_t *strides,
                       const uint64_t *sizes, unsigned ndim, uint64_t itemsize)
{
    uint64_t span = itemsize;
    for (unsigned d = 0; d < ndim; d++) {
        uint64_t step;
        if (!checked_mul(strides[d], itemsize, &step) ||
            !checked_mul_add(sizes[d] - 1, step, span, &span))
            return false;
    }
    if (where->file >= catalogue_file_count(from))
        return false;
    const uint64_t limit = where->stream ? INT64_MAX : catalogue_file(from, where->file)->nbytes;
    return checked_range(where->offset_bytes, span, limit);
}

static fsdpck_status store_location(struct exec *x, uint64_t chunk, const place *where,
                                    fsdpck_error *err)
{
    const catalogue *from = plan_source(x->r.plan);
    const cat_tensor *t = catalogue_tensor(from, catalogue_chunk(from, chunk)->tensor);
    const uint64_t itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
    uint64_t sizes[NDIM_MAX];
    uint64_t strides[NDIM_MAX];
    chunk_extent *s = &x->chunk_extents[chunk];

    catalogue_chunk_box(from, chunk, NULL, sizes);
    const bool rows = where->rows || strides_are_rows(where->strides, sizes, t->ndim);
    if (rows)
        box_row_major_strides(sizes, t->ndim, strides);
    else
        for (unsigned d = 0; d < t->ndim; d++)
            strides[d] = where->strides[d];
    if (!place_fits(from, where, strides, sizes, t->ndim, itemsize))
        return FAIL(err, INTERNAL, NONE, "reader located a chunk outside of its file");
    if (where->boxes && (!where->stream || !where->rows || where->offset_bytes != 0))
        return FAIL(err, INTERNAL, NONE, "reader computes boxes of a chunk that is not row-major");
    if (where->add < -1 || where->add > 1 || (where->add != 0 && !dtype_can_add((dtype)t->dtype)))
        return FAIL(err, INTERNAL, NONE, "reader adds an unknown constant to a chunk");
    s->offset_bytes = where->offset_bytes;
    s->file = where->file;
    if (!rows)
        RETURN_IF(resolve_keep_strides(x, strides, t->ndim, &s->strides_at, err));
    unsigned flags = EXTENT_RESOLVED | s->flags;
    flags |= where->stream ? EXTENT_STREAM : 0;
    flags |= where->boxes && x->r.source->read_box != NULL ? EXTENT_BOXES : 0;
    flags |= where->swap ? EXTENT_SWAP : 0;
    flags |= where->conj ? EXTENT_CONJ : 0;
    flags |= where->neg ? EXTENT_NEG : 0;
    flags |= where->add > 0 ? EXTENT_ADD : 0;
    flags |= where->add < 0 ? EXTENT_SUBTRACT : 0;
    flags |= rows ? EXTENT_ROWS : 0;
    if (where->has_crc && rows && where->record_offset_bytes == where->offset_bytes &&
        where->record_nbytes == box_nelems(sizes, t->ndim) * itemsize) {
        flags |= EXTENT_CRC;
        s->crc32 = where->crc32;
    }
    s->flags = (uint16_t)flags;
    return FSDPCK_OK;
}

static fsdpck_status resolve_chunk(struct exec *x, uint64_t chunk, fsdpck_error *err)
{
    const source *src = x->r.source;
    place where = {0};
    if (catalogue_chunk(plan_source(x->r.plan), chunk)->place == LOCATION_EMPTY) {
        x->chunk_extents[chunk].flags |= EXTENT_ROWS; /* no strides */
        return src->check_empty(src->ctx, chunk, err);
    }
    RETURN_IF(src->locate(src->ctx, chunk, &where, err));
    return store_location(x, chunk, &where, err);
}

static fsdpck_status resolve_batch(void *ctx, unsigned worker_index, uint64_t job,
                                   fsdpck_error *err)
{
    const resolve_work *work = ctx;
    const uint64_t end = (job + 1) * RESOLVE_BATCH;
    (void)worker_index;
    for (uint64_t i = job * RESOLVE_BATCH; i < end && i < work->count; i++) {
        const uint64_t chunk = work->chunks[i].item;
        const fsdpck_status st = resolve_chunk(work->x, chunk, err);
        if (st != FSDPCK_OK) {
            exec_add_chunk_context(work->x, chunk, err);
            return st;
        }
    }
    return FSDPCK_OK;
}

/* Chunks with a header of the tensors that are read, without replicas that are not compared. */
static uint64_t list_chunks(const struct exec *x, sort_pair *list)
{
    const plan *p = x->r.plan;
    const catalogue *from = plan_source(p);
    uint64_t n = 0;
    for (uint64_t t = 0; t < x->tensor_count; t++) {
        if (!plan_uses_tensor(p, (uint32_t)t))
            continue;
        const cat_tensor *tensor = catalogue_tensor(from, t);
        const unsigned skip = replica_is_trusted(p, (uint32_t)t) ? EXTENT_REPLICA : 0;
        for (uint64_t k = tensor->first_chunk; k < tensor->first_chunk + tensor->nchunks; k++)
            if (source_has_header(x->r.source, from, k) && !(x->chunk_extents[k].flags & skip))
                list[n++] = (sort_pair){catalogue_chunk(from, k)->offset_bytes, (uint32_t)k};
    }
    return n;
}

static void mark_replicas(struct exec *x)
{
    const catalogue *from = plan_source(x->r.plan);
    for (uint64_t t = 0; t < x->tensor_count; t++) {
        uint32_t count;
        const box_replica *pairs = plan_replicas_of(x->r.plan, (uint32_t)t, &count);
        for (uint32_t i = 0; i < count; i++)
            x->chunk_extents[catalogue_tensor(from, t)->first_chunk + pairs[i].again].flags =
                EXTENT_REPLICA;
        if (replica_is_trusted(x->r.plan, (uint32_t)t))
            x->stats.replicas_trusted += count;
    }
}

/* This rank's part. */
static fsdpck_status resolve_listed(struct exec *x, sort_pair *list, sort_pair *scratch,
                                    uint64_t *count, fsdpck_error *err)
{
    uint64_t begin, end;
    const plan *p = x->r.plan;
    mark_replicas(x);
    const uint64_t n = list_chunks(x, list);
    /* By file, then offset, so that headers are read sequentially. */
    sort_pairs(list, scratch, n, NULL, NULL);
    for (uint64_t i = 0; i < n; i++)
        list[i].key = catalogue_chunk(plan_source(p), list[i].item)->file;
    sort_pairs(list, scratch, n, NULL, NULL);
    *count = n;
    resolve_partition(x, list, scratch, n);
    resolve_partition_of(x, list, n, group_rank(x->r.group), &begin, &end);
    resolve_work work = {.x = x, .chunks = list + begin, .count = end - begin};
    progress_phase(x->r.progress, "locating", 0);
    return pool_run(x->r.nthreads, (work.count + RESOLVE_BATCH - 1) / RESOLVE_BATCH, resolve_batch,
                    &work, x->r.cancel, err);
}

/* Chunks that are streams, and the tensors that they make source-driven; tensors with an added constant
 * or computed boxes. */
static fsdpck_status find_streams(struct exec *x, fsdpck_error *err)
{
    const catalogue *from = plan_source(x->r.plan);
    for (uint64_t k = 0; k < x->chunk_extent_count; k++) {
        if (x->chunk_extents[k].flags & (EXTENT_ADD | EXTENT_SUBTRACT))
            x->tensor_flags[catalogue_chunk(from, k)->tensor] |= TENSOR_ADDED;
        if ((x->chunk_extents[k].flags & (EXTENT_STREAM | EXTENT_REPLICA)) != EXTENT_STREAM)
            continue;
        if (x->chunk_extents[k].flags & EXTENT_BOXES) {
            x->tensor_flags[catalogue_chunk(from, k)->tensor] |= TENSOR_COMPUTED;
            continue;
        }
        RETURN_IF(vec_add(&x->streams, &(uint64_t){k}, err));
        x->tensor_flags[catalogue_chunk(from, k)->tensor] |= TENSOR_STREAMED;
    }
    return FSDPCK_OK;
}

/* Whether the box holds whole rows of the tensor: then its elements are a run there. */
static bool box_is_run(const catalogue *from, uint64_t chunk)
{
    const cat_tensor *t = catalogue_tensor(from, catalogue_chunk(from, chunk)->tensor);
    const uint64_t *shape = catalogue_shape(from, catalogue_chunk(from, chunk)->tensor);
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(from, chunk, NULL, sizes);
    unsigned d = 0;
    while (d < t->ndim && sizes[d] == 1)
        d++;
    for (d++; d < t->ndim; d++)
        if (sizes[d] != shape[d])
            return false;
    return true;
}

/* The first dim of the matrices that the chunk is stored across: a tile needs short runs of all
 * their rows. ndim: a row-major walk of the chunk walks the file forward as well, as in rows apart
 * from each other, and a small tile needs as long a read as a large one. */
static unsigned first_dim_across(const struct exec *x, uint64_t chunk)
{
    const catalogue *from = plan_source(x->r.plan);
    const cat_tensor *t = catalogue_tensor(from, catalogue_chunk(from, chunk)->tensor);
    uint64_t sizes[NDIM_MAX], strides[NDIM_MAX];
    uint64_t span = 1;
    unsigned across = t->ndim;
    catalogue_chunk_box(from, chunk, NULL, sizes);
    exec_chunk_strides(x, chunk, strides);
    for (unsigned d = t->ndim; d-- > 0;) {
        if (sizes[d] == 1)
            continue;
        across = strides[d] < span ? d : across;
        span += (sizes[d] - 1) * strides[d]; /* within the file, see place_fits */
    }
    return across;
}

/* Tensors whose reads get longer with the tile: stored across, or split into many column shards. */
static void find_wide(struct exec *x)
{
    const catalogue *from = plan_source(x->r.plan);
    for (uint64_t k = 0; k < x->chunk_extent_count; k++) {
        const unsigned flags = x->chunk_extents[k].flags;
        const uint32_t tensor = catalogue_chunk(from, k)->tensor;
        const cat_tensor *t = catalogue_tensor(from, tensor);
        uint8_t *found = &x->tensor_flags[tensor];
        if (!(flags & EXTENT_RESOLVED) || (flags & EXTENT_BOXES) ||
            (*found & (TENSOR_WIDE | TENSOR_ACROSS)))
            continue;
        const unsigned dim = flags & EXTENT_ROWS ? t->ndim : first_dim_across(x, k);
        if (dim < t->ndim)
            *found |= (uint8_t)(TENSOR_ACROSS | (dim < TENSOR_DIM_MAX ? dim : TENSOR_DIM_MAX)
                                                    << TENSOR_DIM_AT);
        else if (t->nchunks > WIDE_CHUNKS && !box_is_run(from, k))
            *found |= TENSOR_WIDE;
        x->any_across = x->any_across || dim < t->ndim;
    }
}

fsdpck_status exec_resolve_all(struct exec *x, group *g, fsdpck_status st, fsdpck_error *err)
{
    uint64_t count = 0;
    /* Errors of memory or device name the rank; errors of a file are reported as by a single
     * process. */
    RETURN_IF(group_agree(g, st, err));
    const uint64_t nbytes = 2 * x->chunk_extent_count * sizeof(sort_pair);
    sort_pair *list = budget_alloc(x->r.metadata, nbytes, err);
    st = list == NULL ? FSDPCK_LIMIT
                      : resolve_listed(x, list, list + x->chunk_extent_count, &count, err);
    st = resolve_exchange(g, st, x, list, count, err);
    budget_free(x->r.metadata, list, nbytes);
    RETURN_IF(st);
    vec_trim(&x->strides);
    RETURN_IF(find_streams(x, err));
    find_wide(x);
    return x->r.ignores_copies ? FSDPCK_OK : replica_check_crcs(x, err);
}
