/* map_adapter_source.c: pieces of the second catalogue, and its source. */
#include <string.h>

#include "base/checked.h"
#include "map/map_adapter_internal.h"

/* --- chunks --- */

fsdpck_status map_adapter_add_chunk(map_adapter *v, uint32_t tensor, uint64_t chunk, uint32_t piece,
                                    const uint64_t *offsets, const uint64_t *sizes, cat_chunk *k,
                                    fsdpck_error *err)
{
    if (v->chunks.count == UINT32_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many chunks");
    RETURN_IF(
        vec_add(&v->chunks, &(map_chunk){.chunk = chunk, .piece = piece, .add = v->add}, err));
    k->aux = (uint32_t)(v->chunks.count - 1);
    return catalogue_add_chunk(v->out, tensor, offsets, sizes, k, err);
}

fsdpck_status map_adapter_add_same_chunks(map_adapter *v, uint32_t from, uint32_t tensor,
                                          fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, from);
    for (uint64_t i = t->first_chunk; i < t->first_chunk + t->nchunks; i++) {
        uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
        cat_chunk k = *catalogue_chunk(v->base, i);
        catalogue_chunk_box(v->base, i, offsets, sizes);
        RETURN_IF(map_adapter_add_chunk(v, tensor, i, MAP_NONE, offsets, sizes, &k, err));
    }
    return FSDPCK_OK;
}

/* --- pieces --- */

/* Rope makes a piece of every two rows, so only the dims that a tensor has are kept: the dims that they come
 * from, a byte each, offsets and steps; then the start by the dims of the source. */
fsdpck_status map_piece_keep(map_adapter *v, const map_piece *p, unsigned ndim, unsigned from_ndim,
                             uint32_t *at, fsdpck_error *err)
{
    const size_t count = 1 + 2 * (size_t)ndim + from_ndim;
    if (v->pieces.count >= MAP_NONE - count)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many pieces of tensors");
    *at = (uint32_t)v->pieces.count;
    uint64_t *to = vec_push_n(&v->pieces, count, err);
    if (to == NULL)
        return FSDPCK_LIMIT;
    memcpy(to, p->from_dim, sizeof p->from_dim);
    memcpy(to + 1, p->offsets, ndim * sizeof *to);
    memcpy(to + 1 + ndim, p->step, ndim * sizeof *to);
    memcpy(to + 1 + 2 * (size_t)ndim, p->start, from_ndim * sizeof *to);
    return FSDPCK_OK;
}

/* Without its source and sizes. */
static void get_piece(const map_adapter *v, uint32_t at, unsigned ndim, unsigned from_ndim,
                      map_piece *p)
{
    const uint64_t *from = VEC_AT(&v->pieces, const uint64_t, at);
    memcpy(p->from_dim, from, sizeof p->from_dim);
    memcpy(p->offsets, from + 1, ndim * sizeof *from);
    memcpy(p->step, from + 1 + ndim, ndim * sizeof *from);
    memcpy(p->start, from + 1 + 2 * (size_t)ndim, from_ndim * sizeof *from);
}

/* --- the source --- */

static const map_chunk *chunk_of(const map_adapter *v, uint64_t chunk)
{
    return VEC_AT(&v->chunks, const map_chunk, catalogue_chunk(v->out, chunk)->aux);
}

bool map_piece_find(const map_piece *p, unsigned ndim, const uint64_t *offsets, unsigned from_ndim,
                    const uint64_t *from_offsets, const uint64_t *from_strides, uint64_t *strides,
                    uint64_t *skip)
{
    uint64_t at[MAP_DIMS_MAX];
    memcpy(at, p->start, from_ndim * sizeof *at);
    for (unsigned d = 0; d < ndim; d++) {
        const unsigned from = p->from_dim[d];
        strides[d] = 1;
        if (from == MAP_DIMS_MAX)
            continue;
        at[from] += (offsets[d] - p->offsets[d]) * p->step[d];
        if (!checked_mul(from_strides[from], p->step[d], &strides[d]))
            return false;
    }
    *skip = 0;
    for (unsigned d = 0; d < from_ndim; d++)
        if (!checked_mul_add(at[d] - from_offsets[d], from_strides[d], *skip, skip))
            return false;
    return true;
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const map_adapter *v = ctx;
    const map_chunk *s = chunk_of(v, chunk);
    uint64_t offsets[NDIM_MAX], from_offsets[NDIM_MAX], from_sizes[NDIM_MAX];
    uint64_t strides[NDIM_MAX], skip;

    RETURN_IF(v->base_source.locate(v->base_source.ctx, s->chunk, where, err));
    where->add = (int8_t)(where->add + s->add);
    if (s->piece == MAP_NONE)
        return FSDPCK_OK;
    where->boxes = false;
    const cat_tensor *t = catalogue_tensor(v->out, catalogue_chunk(v->out, chunk)->tensor);
    const cat_tensor *from = catalogue_tensor(v->base, catalogue_chunk(v->base, s->chunk)->tensor);
    map_piece p;
    get_piece(v, s->piece, t->ndim, from->ndim, &p);
    catalogue_chunk_box(v->out, chunk, offsets, NULL);
    catalogue_chunk_box(v->base, s->chunk, from_offsets, from_sizes);
    if (where->rows)
        box_row_major_strides(from_sizes, from->ndim, where->strides);
    if (!map_piece_find(&p, t->ndim, offsets, from->ndim, from_offsets, where->strides, strides,
                        &skip) ||
        !checked_mul(skip, dtype_get((dtype)t->dtype)->itemsize_bytes, &skip) ||
        !checked_add(where->offset_bytes, skip, &where->offset_bytes))
        return FAIL(err, BADINPUT, TENSOR_BOUNDS, "tensor extends beyond its storage");
    memcpy(where->strides, strides, t->ndim * sizeof *strides);
    where->rows = false;
    return FSDPCK_OK;
}

static fsdpck_status read_at(void *ctx, uint32_t file, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    const source *s = &((const map_adapter *)ctx)->base_source;
    return s->read_at(s->ctx, file, offset_bytes, dst, nbytes, err);
}

static fsdpck_status stream_open(void *ctx, uint64_t chunk, source_stream **stream,
                                 fsdpck_error *err)
{
    const map_adapter *v = ctx;
    return v->base_source.stream_open(v->base_source.ctx, chunk_of(v, chunk)->chunk, stream, err);
}

/* Of a chunk that only has another name: see locate. */
static fsdpck_status read_box(void *ctx, uint64_t chunk, const uint64_t *offsets,
                              const uint64_t *sizes, void *dst, fsdpck_error *err)
{
    const map_adapter *v = ctx;
    const source *s = &v->base_source;
    return s->read_box(s->ctx, chunk_of(v, chunk)->chunk, offsets, sizes, dst, err);
}

static uint64_t stream_nbytes(void *ctx, uint64_t chunk)
{
    const map_adapter *v = ctx;
    return v->base_source.stream_nbytes(v->base_source.ctx, chunk_of(v, chunk)->chunk);
}

static stream_checksum stream_checksum_of(void *ctx, uint64_t chunk)
{
    const map_adapter *v = ctx;
    return v->base_source.stream_checksum_of(v->base_source.ctx, chunk_of(v, chunk)->chunk);
}

static const char *replica_of(void *ctx, uint64_t chunk)
{
    const map_adapter *v = ctx;
    return v->base_source.replica_of(v->base_source.ctx, chunk_of(v, chunk)->chunk);
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    const source *s = &((const map_adapter *)ctx)->base_source;
    return s->check_unchanged(s->ctx, err);
}

int8_t map_adapter_added(const map_adapter *v, uint64_t chunk)
{
    return chunk_of(v, chunk)->add;
}

const source *map_adapter_source(const map_adapter *v)
{
    return &v->source;
}

uint64_t map_adapter_chunk(const map_adapter *v, uint64_t chunk)
{
    return chunk_of(v, chunk)->chunk;
}

void map_adapter_set_source(map_adapter *v, const source *src)
{
    v->base_source = *src;
    v->source =
        (source){.ctx = v,
                 .cat = v->out,
                 .root = src->root,
                 .root_is_file = src->root_is_file,
                 .locate = locate,
                 .read_at = read_at,
                 .stream_open = src->stream_open == NULL ? NULL : stream_open,
                 .stream_read = src->stream_read,
                 .stream_finish = src->stream_finish,
                 .stream_close = src->stream_close,
                 .stream_nbytes = src->stream_nbytes == NULL ? NULL : stream_nbytes,
                 .read_box = src->read_box == NULL ? NULL : read_box,
                 .stream_checksum_of = src->stream_checksum_of == NULL ? NULL : stream_checksum_of,
                 .replica_of = src->replica_of == NULL ? NULL : replica_of,
                 .check_unchanged = check_unchanged};
}
