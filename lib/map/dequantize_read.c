/* dequantize_read.c: the source of dequantized tensors. A stream reads its rows of the weight and the
 * scales of their blocks when it is opened, and decodes band by band. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "map/dequantize_internal.h"
#include "state/cast.h"

/* --- decoding --- */

typedef struct dequantize_stream {
    const dequantizer *v;
    const quant_pair *pair;
    source_stream *other;            /* of the first source; then the rest is unused */
    const uint64_t *offsets, *sizes; /* of the weight's box */
    uint64_t row_nbytes;             /* of the weight */
    uint8_t *bytes;                  /* its rows */
    float *scales;                   /* of the blocks that the box touches; of groups, halved */
    uint64_t scale_columns;
    uint64_t bands, next_band; /* the unit of decoding: a row, or a group of all rows */
    float *band;
    uint16_t *decoded;
    uint64_t decoded_nbytes, taken_nbytes;
} dequantize_stream;

static unsigned weight_ndim(const dequantize_stream *s)
{
    return catalogue_tensor(s->v->base, s->pair->weight)->ndim;
}

static void decode_fp8_row(dequantize_stream *s)
{
    const unsigned ndim = weight_ndim(s);
    const uint64_t first = s->offsets[ndim - 1], n = s->sizes[ndim - 1];
    const uint64_t block_row =
        (s->offsets[ndim - 2] + s->next_band) / QUANT_BLOCK - s->offsets[ndim - 2] / QUANT_BLOCK;
    const float *scales = s->scales + block_row * s->scale_columns;
    const dtype d = (dtype)catalogue_tensor(s->v->base, s->pair->weight)->dtype;
    cast_elements(d, DTYPE_FLOAT32, s->band, s->bytes + s->next_band * s->row_nbytes, n);
    for (uint64_t i = 0; i < n;) {
        uint64_t end = ((first + i) / QUANT_BLOCK + 1) * QUANT_BLOCK - first;
        const float scale = scales[(first + i) / QUANT_BLOCK - first / QUANT_BLOCK];
        end = end < n ? end : n;
        for (; i < end; i++)
            s->band[i] *= scale;
    }
}

/* One group of every row, with the two dims exchanged: as many rows as the group has values. */
static void decode_mxfp4_group(dequantize_stream *s)
{
    static const float values[16] = {+0.0f, +0.5f, +1.0f, +1.5f, +2.0f, +3.0f, +4.0f, +6.0f,
                                     -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    const uint64_t n = s->sizes[3], rows = s->sizes[1];
    for (uint64_t r = 0; r < rows; r++) {
        const uint8_t *bytes = s->bytes + r * s->row_nbytes + s->next_band * n;
        /* Scales are halved, as the largest is 2^128, which a float does not hold. */
        const float scale = s->scales[r * s->scale_columns + s->next_band];
        float *to = s->band + r;
        for (uint64_t i = 0; i < n; i++) {
            to[2 * i * rows] = values[bytes[i] & 15] * scale * 2;
            to[(2 * i + 1) * rows] = values[bytes[i] >> 4] * scale * 2;
        }
    }
}

static void decode_band(dequantize_stream *s)
{
    if (s->pair->kind == QUANT_MXFP4)
        decode_mxfp4_group(s);
    else
        decode_fp8_row(s);
    cast_elements(DTYPE_FLOAT32, DTYPE_BFLOAT16, s->decoded, s->band,
                  s->decoded_nbytes / sizeof(uint16_t));
    s->next_band++;
    s->taken_nbytes = 0;
}

/* The scales of the box, as floats. */
static fsdpck_status read_scales(dequantize_stream *s, fsdpck_error *err)
{
    const unsigned ndim = weight_ndim(s);
    const cat_tensor *t = catalogue_tensor(s->v->base, s->pair->scale);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    memcpy(offsets, s->offsets, t->ndim * sizeof *offsets);
    memcpy(sizes, s->sizes, t->ndim * sizeof *sizes);
    for (unsigned d = ndim - 2; s->pair->kind == QUANT_FP8 && d < ndim; d++) {
        offsets[d] = s->offsets[d] / QUANT_BLOCK;
        sizes[d] = (s->offsets[d] + s->sizes[d] - 1) / QUANT_BLOCK + 1 - offsets[d];
    }
    const uint64_t n = box_nelems(sizes, t->ndim);
    s->scale_columns = sizes[t->ndim - 1];
    s->scales = malloc(n * sizeof *s->scales);
    uint8_t *raw = malloc(n * sizeof *s->scales);
    fsdpck_status st = s->scales == NULL || raw == NULL
                           ? error_set_nomem(err, n * sizeof *s->scales)
                           : box_read(&s->v->reader, s->pair->scale, offsets, sizes, raw, err);
    for (uint64_t i = 0; st == FSDPCK_OK && s->pair->kind == QUANT_MXFP4 && i < n; i++)
        s->scales[i] = ldexpf(1, (int)raw[i] - 128);
    if (st == FSDPCK_OK && s->pair->kind == QUANT_FP8) {
        if (t->dtype == DTYPE_FLOAT32)
            memcpy(s->scales, raw, n * sizeof *s->scales);
        else
            cast_elements((dtype)t->dtype, DTYPE_FLOAT32, s->scales, raw, n);
    }
    free(raw);
    return st;
}

static fsdpck_status read_rows(dequantize_stream *s, const quant_chunk *k, fsdpck_error *err)
{
    const unsigned ndim = weight_ndim(s), row = s->pair->kind == QUANT_MXFP4 ? 1 : ndim - 2;
    const uint64_t nbytes = box_nelems(s->sizes, ndim);
    s->row_nbytes = box_nelems(s->sizes + row + 1, ndim - row - 1);
    s->bands = s->pair->kind == QUANT_MXFP4 ? s->sizes[2] : s->sizes[row];
    const uint64_t n = nbytes * quant_packing(s->pair->kind) / s->bands;
    s->decoded_nbytes = s->taken_nbytes = n * sizeof *s->decoded;
    s->bytes = malloc(nbytes);
    s->band = malloc(n * sizeof *s->band);
    s->decoded = malloc(s->decoded_nbytes);
    if (s->bytes == NULL || s->band == NULL || s->decoded == NULL)
        return error_set_nomem(err, nbytes);
    return box_read_chunk(&s->v->reader, k->chunk, s->offsets, s->sizes, s->bytes, err);
}

/* --- the source --- */

static const quant_chunk *chunk_of(const dequantizer *v, uint64_t chunk)
{
    return VEC_AT(&v->chunks, const quant_chunk, catalogue_chunk(v->out, chunk)->aux);
}

/* Parts of a stream would each be decoded from its beginning. */
static fsdpck_status fail_compressed(const dequantizer *v, const quant_chunk *k, fsdpck_error *err)
{
    const catalogue *c = v->base;
    const cat_tensor *t = catalogue_tensor(c, catalogue_chunk(c, k->chunk)->tensor);
    return FAIL_WITH(err, UNSUPPORTED, QUANT_KIND,
                     ("'%s' is quantized and compressed", catalogue_name(c, t->name)),
                     (tensor, catalogue_name(c, t->name)),
                     (next, "omit --dequantize to keep it as it is"));
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const dequantizer *v = ctx;
    const quant_chunk *k = chunk_of(v, chunk);
    uint64_t sizes[NDIM_MAX], offsets[NDIM_MAX];
    if (k->pair == QUANT_NONE)
        return v->base_source.locate(v->base_source.ctx, k->chunk, where, err);
    RETURN_IF(v->base_source.locate(v->base_source.ctx, k->chunk, where, err));
    const unsigned ndim = catalogue_tensor(v->out, catalogue_chunk(v->out, chunk)->tensor)->ndim;
    catalogue_chunk_box(v->out, chunk, offsets, sizes);
    if (where->stream)
        return fail_compressed(v, k, err);
    where->stream = true;
    where->swap = where->neg = where->conj = false;
    where->add = 0;
    where->offset_bytes = 0;
    where->rows = true;
    where->has_crc = false;
    where->record_offset_bytes = 0;
    where->record_nbytes = box_nelems(sizes, ndim) * sizeof(uint16_t);
    return FSDPCK_OK;
}

static fsdpck_status read_at(void *ctx, uint32_t file, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    const source *s = &((const dequantizer *)ctx)->base_source;
    return s->read_at(s->ctx, file, offset_bytes, dst, nbytes, err);
}

static void stream_close(source_stream *stream)
{
    dequantize_stream *s = (dequantize_stream *)stream;
    if (s == NULL)
        return;
    if (s->other != NULL)
        s->v->base_source.stream_close(s->other);
    free(s->bytes);
    free(s->scales);
    free(s->band);
    free(s->decoded);
    free(s);
}

static fsdpck_status stream_open(void *ctx, uint64_t chunk, source_stream **stream,
                                 fsdpck_error *err)
{
    const dequantizer *v = ctx;
    const quant_chunk *k = chunk_of(v, chunk);
    *stream = NULL;
    dequantize_stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set_nomem(err, sizeof *s);
    s->v = v;
    fsdpck_status st;
    if (k->pair == QUANT_NONE) {
        st = v->base_source.stream_open(v->base_source.ctx, k->chunk, &s->other, err);
    } else {
        s->pair = VEC_AT(&v->pairs, const quant_pair, k->pair);
        s->offsets = VEC_AT(&v->boxes, const uint64_t, k->box);
        s->sizes = s->offsets + weight_ndim(s);
        st = read_rows(s, k, err);
        if (st == FSDPCK_OK)
            st = read_scales(s, err);
    }
    if (st != FSDPCK_OK)
        stream_close((source_stream *)s);
    else
        *stream = (source_stream *)s;
    return st;
}

static fsdpck_status stream_read(source_stream *stream, void *dst, uint64_t nbytes,
                                 fsdpck_error *err)
{
    dequantize_stream *s = (dequantize_stream *)stream;
    uint8_t *to = dst;
    if (s->other != NULL)
        return s->v->base_source.stream_read(s->other, dst, nbytes, err);
    while (nbytes > 0) {
        if (s->taken_nbytes == s->decoded_nbytes) {
            if (s->next_band == s->bands)
                return FAIL(err, INTERNAL, NONE, "read past the end of a dequantized chunk");
            decode_band(s);
        }
        const uint64_t left = s->decoded_nbytes - s->taken_nbytes;
        const uint64_t n = nbytes < left ? nbytes : left;
        memcpy(to, (const uint8_t *)s->decoded + s->taken_nbytes, n);
        s->taken_nbytes += n;
        to += n;
        nbytes -= n;
    }
    return FSDPCK_OK;
}

static fsdpck_status stream_finish(source_stream *stream, fsdpck_error *err)
{
    dequantize_stream *s = (dequantize_stream *)stream;
    return s->other == NULL ? FSDPCK_OK : s->v->base_source.stream_finish(s->other, err);
}

static uint64_t stream_nbytes(void *ctx, uint64_t chunk)
{
    const dequantizer *v = ctx;
    const quant_chunk *k = chunk_of(v, chunk);
    const source *s = &v->base_source;
    if (k->pair == QUANT_NONE)
        return s->stream_nbytes == NULL ? 0 : s->stream_nbytes(s->ctx, k->chunk);
    const quant_pair *p = VEC_AT(&v->pairs, const quant_pair, k->pair);
    const unsigned ndim = catalogue_tensor(v->base, p->weight)->ndim;
    const uint64_t *sizes = VEC_AT(&v->boxes, const uint64_t, k->box) + ndim;
    const uint64_t nbytes = box_nelems(sizes, ndim);
    const uint64_t bands = p->kind == QUANT_MXFP4 ? sizes[2] : sizes[ndim - 2];
    return nbytes + nbytes / bands * quant_packing(p->kind) * (sizeof(float) + sizeof(uint16_t));
}

static stream_checksum stream_checksum_of(void *ctx, uint64_t chunk)
{
    const dequantizer *v = ctx;
    const quant_chunk *k = chunk_of(v, chunk);
    const source *s = &v->base_source;
    return k->pair != QUANT_NONE || s->stream_checksum_of == NULL
               ? STREAM_CHECKSUM_UNKNOWN
               : s->stream_checksum_of(s->ctx, k->chunk);
}

static const char *replica_of(void *ctx, uint64_t chunk)
{
    const dequantizer *v = ctx;
    return v->base_source.replica_of(v->base_source.ctx, chunk_of(v, chunk)->chunk);
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    const source *s = &((const dequantizer *)ctx)->base_source;
    return s->check_unchanged(s->ctx, err);
}

void dequantizer_set_source(dequantizer *v)
{
    v->source = (source){.ctx = v,
                         .cat = v->out,
                         .root = v->base_source.root,
                         .root_is_file = v->base_source.root_is_file,
                         .locate = locate,
                         .read_at = read_at,
                         .stream_open = stream_open,
                         .stream_read = stream_read,
                         .stream_finish = stream_finish,
                         .stream_close = stream_close,
                         .stream_nbytes = stream_nbytes,
                         .stream_checksum_of = stream_checksum_of,
                         .replica_of = v->base_source.replica_of == NULL ? NULL : replica_of,
                         .check_unchanged = check_unchanged};
}
