#include "run/view_sums.h"

#include <stdlib.h>

#include "exec/box_crc.h"
#include "state/strided.h"

/* Bytes per read, and elements per reordering step. */
#define READ_NBYTES   ((uint64_t)1 << 20)
#define BLOCK_ELEMS   ((uint64_t)1 << 16)
#define ITEM_NBYTES   16u
#define WORKER_NBYTES (READ_NBYTES + BLOCK_ELEMS * ITEM_NBYTES)

typedef struct view_work {
    run *r;
    vec tensors;      /* uint32_t: those that are views */
    uint8_t *buffers; /* of each worker: READ_NBYTES, then BLOCK_ELEMS elements */
} view_work;

/* One view. Strides are elements of the storage, which lies at `begin` of the file. */
typedef struct view {
    uint32_t file;
    uint64_t begin;
    uint64_t itemsize_bytes;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t strides[NDIM_MAX]; /* bytes */
} view;

static bool is_view(const catalogue *cat, uint64_t tensor)
{
    return catalogue_tensor(cat, tensor)->alias != CAT_NONE &&
           catalogue_tensor_nelems(cat, tensor) > 0;
}

static fsdpck_status list_views(view_work *w, uint64_t *nbytes, fsdpck_error *err)
{
    const catalogue *cat = &w->r->to.cat;
    *nbytes = 0;
    for (uint64_t i = 0; w->r->to.views.count > 0 && i < catalogue_tensor_count(cat); i++) {
        if (!is_view(cat, i))
            continue;
        RETURN_IF(vec_add(&w->tensors, &(uint32_t){(uint32_t)i}, err));
        *nbytes += catalogue_tensor_nbytes(cat, i);
    }
    return FSDPCK_OK;
}

static view find_view(const target *t, uint32_t tensor)
{
    const cat_tensor *ct = catalogue_tensor(&t->cat, tensor);
    const target_alias *where = VEC_AT(&t->views, const target_alias, ct->alias);
    const cat_tensor *storage = catalogue_tensor(&t->cat, where->storage);
    const cat_chunk *k = catalogue_chunk(&t->cat, storage->first_chunk);
    view v = {.file = k->file,
              .itemsize_bytes = dtype_get((dtype)ct->dtype)->itemsize_bytes,
              .ndim = ct->ndim,
              .shape = catalogue_shape(&t->cat, tensor)};
    v.begin = k->offset_bytes + where->offset_nelems * v.itemsize_bytes;
    for (unsigned d = 0; d < v.ndim; d++)
        v.strides[d] =
            *VEC_AT(&t->strides, const uint64_t, where->strides_at + d) * v.itemsize_bytes;
    return v;
}

/* Adds a part of the view, whose elements are in memory, to the view's checksum. */
static uint64_t sum_part(const view *v, const box_split *part, const uint8_t *bytes, uint8_t *dense)
{
    uint64_t row_major[NDIM_MAX], offsets[NDIM_MAX], sum = 0;
    box_split block;
    box_row_major_strides(part->part, v->ndim, row_major);
    box_split_begin(&block, v->ndim, part->part, row_major, 1, BLOCK_ELEMS);
    while (box_split_next(&block)) {
        strided s = {.ndim = v->ndim};
        uint64_t at = 0, stride = v->itemsize_bytes;
        for (unsigned d = v->ndim; d-- > 0;) {
            offsets[d] = part->at[d] + block.at[d];
            at += block.at[d] * v->strides[d];
            s.sizes[d] = block.part[d];
            s.src_strides[d] = v->strides[d];
            s.dst_strides[d] = stride;
            stride *= block.part[d];
        }
        strided_collapse(&s);
        strided_copy(&s, v->itemsize_bytes, dense, bytes + at);
        const box_bytes box = {v->ndim, v->shape, v->itemsize_bytes, offsets, block.part};
        sum ^= box_crc(&box, 0, stride, dense);
    }
    return sum;
}

static fsdpck_status sum_view(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err)
{
    const view_work *w = ctx;
    run *r = w->r;
    const uint32_t tensor = *VEC_AT(&w->tensors, const uint32_t, job);
    const view v = find_view(&r->to, tensor);
    uint8_t *bytes = w->buffers + worker * WORKER_NBYTES;
    uint64_t sum = 0;
    box_split part;
    box_split_begin(&part, v.ndim, v.shape, v.strides, v.itemsize_bytes, READ_NBYTES);
    while (box_split_next(&part)) {
        RETURN_IF(cancel_check(&r->ctx->cancel, err));
        RETURN_IF(
            run_read_output(r, v.file, v.begin + part.offset_bytes, bytes, part.span_bytes, err));
        sum ^= sum_part(&v, &part, bytes, bytes + READ_NBYTES);
    }
    r->to.chunk_digest[catalogue_tensor(&r->to.cat, tensor)->first_chunk] = sum;
    progress_add(&r->ctx->progress, catalogue_tensor_nbytes(&r->to.cat, tensor));
    return FSDPCK_OK;
}

static fsdpck_status digest_views(view_work *w, fsdpck_error *err)
{
    uint64_t nbytes;
    RETURN_IF(list_views(w, &nbytes, err));
    if (w->tensors.count == 0)
        return FSDPCK_OK;
    unsigned workers = thread_count(w->r->opt.work.threads);
    if (workers > w->tensors.count)
        workers = (unsigned)w->tensors.count;
    w->buffers = malloc(workers * WORKER_NBYTES);
    if (w->buffers == NULL)
        return error_set_nomem(err, workers * WORKER_NBYTES);
    progress_phase(&w->r->ctx->progress, "checksumming views", nbytes);
    return pool_run(workers, w->tensors.count, sum_view, w, &w->r->ctx->cancel, err);
}

fsdpck_status view_sums_fill(run *r, fsdpck_error *err)
{
    view_work w = {.r = r, .tensors = VEC_OF(uint32_t, &r->src->metadata)};
    const fsdpck_status st = digest_views(&w, err);
    vec_release(&w.tensors);
    free(w.buffers);
    return st;
}
