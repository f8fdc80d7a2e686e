/* Compares chunks of the same box, which must have the same elements. */
#include <stdlib.h>
#include <string.h>

#include "exec/exec_internal.h"
#include "exec/row_block.h"

/* Jobs that compare bytes come after those that compare checksums. */
#define COMPARE_FIRST (UINT64_MAX / 2)

static const char *chunk_path(const struct exec *x, uint64_t chunk)
{
    const catalogue *from = plan_source(x->r.plan);
    return catalogue_name(from, catalogue_file(from, catalogue_chunk(from, chunk)->file)->path);
}

/* Of one file at least the bytes are not those of its checksum. */
static bool is_damaged(const struct exec *x, const replica_pair *pair)
{
    const chunk_extent *a = &x->chunk_extents[pair->first];
    const chunk_extent *b = &x->chunk_extents[pair->again];
    return (a->flags & b->flags & EXTENT_CRC) && a->crc32 == b->crc32;
}

static void chunks_differ(const struct exec *x, const replica_pair *pair, const cat_tensor *t,
                          fsdpck_error *err)
{
    const bool damaged = is_damaged(x, pair);
    if (!damaged && (t->flags & CAT_TENSOR_EACH_RANK)) {
        FAIL(err, BADINPUT, RANK_DIFFER, "a plain tensor differs between ranks");
        return;
    }
    FAIL_WITH(
        err, BADINPUT, REPLICA_DIFFER, ("two copies of a chunk differ"),
        (next, "%s",
         damaged
             ? "copy both files again: one is damaged, because their recorded checksums are equal"
             : "determine which rank is right, and whether the files are of two saves; "
               "--replicas=first uses the first copy"));
}

/* Two names of one tensor. */
static const char *replica_of(const struct exec *x, const replica_pair *pair)
{
    const source *s = x->r.source;
    const char *name = s->replica_of == NULL ? NULL : s->replica_of(s->ctx, pair->again);
    return name != NULL || s->replica_of == NULL ? name : s->replica_of(s->ctx, pair->first);
}

static void aliases_differ(const struct exec *x, const char *name, uint32_t tensor,
                           fsdpck_error *err)
{
    const catalogue *from = plan_source(x->r.plan);
    FAIL_WITH(err, BADINPUT, TIE_DIFFERS,
              ("'%s' and '%s' are tied in the model but differ",
               catalogue_name(from, catalogue_tensor(from, tensor)->name), name),
              (next,
               "determine which is right, and remove the other from same_as in --model FILE; "
               "--replicas=first uses '%s'",
               catalogue_name(from, catalogue_tensor(from, tensor)->name)));
}

static fsdpck_status error_differ(const struct exec *x, const replica_pair *pair, const char *what,
                                  fsdpck_error *err)
{
    char text[200];
    uint64_t offsets[NDIM_MAX];
    uint64_t sizes[NDIM_MAX];
    const catalogue *from = plan_source(x->r.plan);
    const uint32_t tensor = catalogue_chunk(from, pair->first)->tensor;
    const uint64_t low = pair->first < pair->again ? pair->first : pair->again;
    const uint64_t high = pair->first < pair->again ? pair->again : pair->first;
    catalogue_chunk_box(from, pair->first, offsets, sizes);
    const char *twin = replica_of(x, pair);
    if (twin != NULL)
        aliases_differ(x, twin, tensor, err);
    else
        chunks_differ(x, pair, catalogue_tensor(from, tensor), err);
    error_expected(
        err, "equal %s of %s", what,
        box_text(text, sizeof text, offsets, sizes, catalogue_tensor(from, tensor)->ndim));
    error_found(err, "'%s' and '%s' differ", chunk_path(x, low), chunk_path(x, high));
    exec_add_chunk_context(x, high, err);
    return FSDPCK_BADINPUT;
}

static fsdpck_status check_pair(struct exec *x, const replica_pair *pair, fsdpck_error *err)
{
    const chunk_extent *a = &x->chunk_extents[pair->first];
    const chunk_extent *b = &x->chunk_extents[pair->again];
    const bool has_crcs = plan_replica_policy(x->r.plan) != REPLICAS_COMPARE &&
                          (a->flags & EXTENT_CRC) && (b->flags & EXTENT_CRC) &&
                          (a->flags & EXTENT_OPS) == (b->flags & EXTENT_OPS);
    if (has_crcs && a->crc32 != b->crc32)
        return error_differ(x, pair, "checksums", err);
    if (has_crcs) {
        x->stats.replicas_by_crc++;
        return FSDPCK_OK;
    }
    return vec_add(&x->compare, pair, err);
}

/* What a comparison found: noted in x->r.differences where somebody wants that, else the result. Of
 * other findings the one of the lowest job is kept in *found. From any thread. */
typedef struct findings_of_jobs {
    struct exec *x;
    uint64_t first_job; /* jobs count from there */
    uint64_t job;       /* of `what`, where its status is not OK */
    fsdpck_error what;
} findings_of_jobs;

static fsdpck_status note_result(findings_of_jobs *f, uint64_t job, uint64_t chunk,
                                 fsdpck_status st, const fsdpck_error *what, fsdpck_error *err)
{
    struct exec *x = f->x;
    rank_differences *d = x->r.differences;
    if (st == FSDPCK_OK)
        return st;
    if (st != FSDPCK_BADINPUT || d == NULL) {
        if (err != NULL)
            *err = *what;
        return st;
    }
    pthread_mutex_lock(&x->lock);
    if (what->finding == FSDPCK_FINDING_RANK_DIFFER) {
        const uint32_t tensor = catalogue_chunk(plan_source(x->r.plan), chunk)->tensor;
        d->tensors[tensor / 64] |= UINT64_C(1) << tensor % 64;
        if (!d->any || job < d->first_job) {
            d->first = *what;
            d->first_job = job;
        }
        d->any = true;
    } else if (f->what.status == FSDPCK_OK || job < f->job) {
        f->what = *what;
        f->job = job;
    }
    pthread_mutex_unlock(&x->lock);
    return FSDPCK_OK;
}

static fsdpck_status kept_result(const findings_of_jobs *f, fsdpck_status st, fsdpck_error *err)
{
    if (st != FSDPCK_OK || f->what.status == FSDPCK_OK)
        return st;
    if (err != NULL)
        *err = f->what;
    return f->what.status;
}

fsdpck_status replica_check_crcs(struct exec *x, fsdpck_error *err)
{
    const catalogue *from = plan_source(x->r.plan);
    findings_of_jobs found = {.x = x};
    fsdpck_error what;
    uint64_t job = 0;
    fsdpck_error_init(&found.what);
    for (uint64_t t = 0; t < x->tensor_count; t++) {
        uint32_t count;
        if (replica_is_trusted(x->r.plan, (uint32_t)t))
            continue;
        const box_replica *pairs = plan_replicas_of(x->r.plan, (uint32_t)t, &count);
        const uint64_t first = catalogue_tensor(from, t)->first_chunk;
        for (uint32_t i = 0; i < count; i++) {
            const replica_pair pair = {first + pairs[i].first, first + pairs[i].again};
            const fsdpck_status st = check_pair(x, &pair, &what);
            RETURN_IF(note_result(&found, job++, pair.first, st, &what, err));
        }
    }
    return kept_result(&found, FSDPCK_OK, err);
}

/* One side of a comparison: a box in memory. */
typedef struct side {
    const uint8_t *bytes;
    const uint64_t *strides; /* bytes */
    element_ops convert;
} side;

/* Gathers a block into dense, converted elements. */
static void resolve_block(const side *s, const box_split *block, unsigned ndim, uint8_t *dense)
{
    const uint64_t itemsize = dtype_get(s->convert.from)->itemsize_bytes;
    strided shape;
    uint64_t at = 0;
    uint64_t stride = itemsize;
    shape.ndim = ndim;
    for (unsigned d = ndim; d-- > 0;) {
        at += block->at[d] * s->strides[d];
        shape.sizes[d] = block->part[d];
        shape.src_strides[d] = s->strides[d];
        shape.dst_strides[d] = stride;
        stride *= block->part[d];
    }
    strided_collapse(&shape);
    strided_copy(&shape, itemsize, dense, s->bytes + at);
    element_ops_resolve(&s->convert, dense, block->span_bytes);
}

static bool boxes_equal(const side *a, const side *b, unsigned ndim, const uint64_t *sizes,
                        uint8_t *scratch)
{
    const uint64_t itemsize = dtype_get(a->convert.from)->itemsize_bytes;
    uint64_t dense[NDIM_MAX];
    box_split block;
    box_row_major_strides(sizes, ndim, dense);
    box_split_begin(&block, ndim, sizes, dense, 1, ELEMENT_OPS_BLOCK);
    while (box_split_next(&block)) {
        uint8_t *other = scratch + ELEMENT_OPS_SCRATCH_NBYTES / 2;
        resolve_block(a, &block, ndim, scratch);
        resolve_block(b, &block, ndim, other);
        if (memcmp(scratch, other, block.span_bytes * itemsize) != 0)
            return false;
    }
    return true;
}

/* The same box of the other copy, in as many reads as its own strides need. */
static fsdpck_status compare_row_block(worker *w, const row_block_reader *row_block,
                                       const replica_pair *pair, fsdpck_error *err)
{
    struct exec *x = w->x;
    const chunk_extent *s = &x->chunk_extents[pair->again];
    const dtype type = exec_chunk_dtype(x, pair->again);
    const uint64_t itemsize = dtype_get(type)->itemsize_bytes;
    uint64_t strides[NDIM_MAX];
    box_split part;
    exec_chunk_strides(x, pair->again, strides);
    uint64_t base = s->offset_bytes;
    for (unsigned d = 0; d < row_block->ndim; d++) {
        strides[d] *= itemsize;
        base += row_block->split.at[d] * strides[d];
    }
    box_split_begin(&part, row_block->ndim, row_block->split.part, strides, itemsize,
                    x->staging_nbytes);
    while (box_split_next(&part)) {
        side a = {w->tile, row_block->strides, exec_chunk_convert(x, pair->first, type)};
        const side b = {w->staging, strides, exec_chunk_convert(x, pair->again, type)};
        for (unsigned d = 0; d < row_block->ndim; d++)
            a.bytes += part.at[d] * row_block->strides[d];
        RETURN_IF(
            worker_read(w, s->file, base + part.offset_bytes, w->staging, part.span_bytes, err));
        if (!boxes_equal(&a, &b, row_block->ndim, part.part, w->scratch))
            return error_differ(x, pair, "elements", err);
    }
    return FSDPCK_OK;
}

/* Two streams, decoded side by side; the second one into memory where its bands come in another order. */
static fsdpck_status compare_streams(worker *w, row_block_reader *a, const replica_pair *pair,
                                     fsdpck_error *err)
{
    struct exec *x = w->x;
    const dtype type = exec_chunk_dtype(x, pair->again);
    const bool same = row_block_same_strides(x, pair->first, pair->again);
    row_block_reader b;
    bool more = true;
    if (same)
        RETURN_IF(row_block_open(&b, w, pair->again, x->staging_nbytes, err));
    else
        RETURN_IF(row_block_open_staged(&b, w, pair->again, err));
    fsdpck_status st = FSDPCK_OK;
    while (st == FSDPCK_OK && more) {
        bool more_too;
        GOTO_IF(row_block_next(a, w->tile, &more, err), out);
        if (same)
            GOTO_IF(row_block_next(&b, w->staging, &more_too, err), out);
        const side one = {w->tile, a->strides, exec_chunk_convert(x, pair->first, type)};
        const side two = {same || !more ? w->staging : row_block_element(&b, a->split.at),
                          b.strides, exec_chunk_convert(x, pair->again, type)};
        if (more && !boxes_equal(&one, &two, a->ndim, a->split.part, w->scratch))
            st = error_differ(x, pair, "elements", err);
    }
out:
    return row_block_close(&b, st, err);
}

static fsdpck_status compare_pair(worker *w, replica_pair pair, fsdpck_error *err)
{
    struct exec *x = w->x;
    const bool both = (x->chunk_extents[pair.first].flags & x->chunk_extents[pair.again].flags &
                       EXTENT_STREAM) != 0;
    if (x->chunk_extents[pair.again].flags & EXTENT_STREAM) /* the stream leads */
        pair = (replica_pair){pair.again, pair.first};
    row_block_reader a;
    bool more = true;
    RETURN_IF(row_block_open(&a, w, pair.first, x->staging_nbytes, err));
    fsdpck_status st = FSDPCK_OK;
    if (both)
        st = compare_streams(w, &a, &pair, err);
    while (!both && st == FSDPCK_OK && more) {
        st = cancel_check(x->r.cancel, err);
        if (st == FSDPCK_OK)
            st = row_block_next(&a, w->tile, &more, err);
        if (st == FSDPCK_OK && more)
            st = compare_row_block(w, &a, &pair, err);
    }
    st = row_block_close(&a, st, err);
    if (st == FSDPCK_OK)
        w->stats.replicas_compared++;
    return st;
}

static fsdpck_status compare_job(void *ctx, unsigned worker_index, uint64_t job, fsdpck_error *err)
{
    findings_of_jobs *found = ctx;
    struct exec *x = found->x;
    const replica_pair *pair = VEC_AT(&x->compare, const replica_pair, x->compare_first + job);
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const fsdpck_status st = compare_pair(x->workers[worker_index], *pair, &what);
    progress_add(x->r.progress, catalogue_chunk(plan_source(x->r.plan), pair->first)->nbytes);
    return note_result(found, found->first_job + job, pair->first, st, &what, err);
}

fsdpck_status replica_compare_remaining(struct exec *x, fsdpck_error *err)
{
    findings_of_jobs found = {.x = x, .first_job = COMPARE_FIRST};
    uint64_t nbytes = 0;
    if (x->compare.count == 0)
        return FSDPCK_OK;
    fsdpck_error_init(&found.what);
    for (size_t i = 0; i < x->compare.count; i++) {
        const replica_pair *pair = VEC_AT(&x->compare, replica_pair, i);
        nbytes += catalogue_chunk(plan_source(x->r.plan), pair->first)->nbytes;
    }
    progress_phase(x->r.progress, "comparing replicas", nbytes);
    uint64_t end;
    group_range(x->r.group, x->compare.count, &x->compare_first, &end);
    /* Each may have two streams open. */
    const unsigned pairs = x->stream_workers > 1 ? x->stream_workers / 2 : 1;
    const fsdpck_status st =
        pool_run(x->stream_nbytes > 0 ? pairs : x->nworkers, end - x->compare_first, compare_job,
                 &found, x->r.cancel, err);
    return kept_result(&found, st, err);
}
