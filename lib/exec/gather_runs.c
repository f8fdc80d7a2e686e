/* Boxes that are read run by run: runs are packed in staging, so that many are copied at a time and
 * the lines of the tile are written whole, not element by element. */
#include "exec/exec_internal.h"

/* Fewer runs than this wait for neighbors, see gather_flush. */
#define RUNS_MIN 8u

/* Length of a contiguous run in the source; marks its dims. */
static uint64_t source_run(const strided *s, uint64_t itemsize, bool *inside)
{
    uint64_t run = itemsize;
    for (unsigned d = 0; d < s->ndim; d++)
        inside[d] = false;
    for (unsigned d = 0; d < s->ndim;) {
        if (!inside[d] && s->src_strides[d] == run) {
            inside[d] = true;
            run *= s->sizes[d];
            d = 0;
        } else {
            d++;
        }
    }
    return run;
}

/* Of matrices stored across, each worker reads neighboring rows; of other tensors, some chunks. */
bool gather_is_own(const worker *w, uint64_t src_chunk, uint64_t index, uint64_t count)
{
    const gather *g = &w->gather;
    if (g->parts == 0)
        return true;
    const uint64_t part = exec_is_across(w->x, src_chunk) ? index * g->parts / count : 0;
    return (part + src_chunk) % g->parts == g->part;
}

/* Whether reading the gaps costs more than a system call per run. */
bool gather_should_read_runs(const worker *w, const strided *s, uint64_t itemsize)
{
    bool inside[NDIM_MAX];
    const uint64_t span = strided_span(s->ndim, s->sizes, s->src_strides, itemsize);
    const uint64_t need = strided_nelems(s) * itemsize;
    const uint64_t run = source_run(s, itemsize, inside);
    return span / 4 > need && span / GATHER_GAP_NBYTES > need / run && need / run >= RUNS_MIN &&
           run <= w->x->staging_nbytes;
}

/* The dim along which runs are packed: the nearest ones in the file. */
static unsigned packed_dim(const strided *s, const bool *inside)
{
    unsigned best = s->ndim;
    for (unsigned d = 0; d < s->ndim; d++)
        if (!inside[d] && (best == s->ndim || s->src_strides[d] < s->src_strides[best]))
            best = d;
    return best;
}

fsdpck_status gather_runs(worker *w, const read_op *box, const element_ops *c, const strided *s,
                          fsdpck_error *err)
{
    const uint64_t itemsize = dtype_get(c->from)->itemsize_bytes;
    bool inside[NDIM_MAX];
    uint64_t packed[NDIM_MAX];
    strided shape;
    box_split *b = &w->split;
    const uint64_t run = source_run(s, itemsize, inside);
    const unsigned along = packed_dim(s, inside);
    w->gather.touched = true;
    /* A stride beyond all limits makes box_split take single indices of the other dims. */
    for (unsigned d = 0; d < s->ndim; d++)
        packed[d] = inside[d] ? s->src_strides[d] : d == along ? run : INT64_MAX;
    const uint64_t staging = w->x->staging_nbytes;
    const bool less =
        w->gather.parts > 0 && staging > GATHER_ACROSS_NBYTES && run <= GATHER_ACROSS_NBYTES;
    box_split_begin(b, s->ndim, s->sizes, packed, itemsize, less ? GATHER_ACROSS_NBYTES : staging);
    const uint64_t count = box_split_count(b);
    for (uint64_t k = 0; box_split_next(b); k++) {
        if (!gather_is_own(w, box->src_chunk, k, count))
            continue;
        uint64_t src_at = box->src_offset_bytes;
        uint8_t *dst = box->dst;
        uint8_t *buffer;
        shape.ndim = s->ndim;
        for (unsigned d = 0; d < s->ndim; d++) {
            src_at += b->at[d] * s->src_strides[d];
            dst += b->at[d] * s->dst_strides[d];
            shape.sizes[d] = b->part[d];
            shape.src_strides[d] = packed[d];
            shape.dst_strides[d] = s->dst_strides[d];
        }
        RETURN_IF(w->place->reserve(w, b->span_bytes, element_ops_is_copy(c) ? dst : NULL, 1,
                                    3 * s->ndim, &buffer, err));
        for (uint64_t i = 0; i < b->part[along]; i++) {
            const uint64_t at = src_at + i * s->src_strides[along];
            const fsdpck_status st = worker_read(w, box->file, at, buffer + i * run, run, err);
            if (st != FSDPCK_OK) {
                exec_add_chunk_context(w->x, box->src_chunk, err);
                return st;
            }
        }
        strided_collapse(&shape);
        w->place->box(w, c, &shape, dst, buffer);
    }
    return FSDPCK_OK;
}
