/* dequantize_read.c: the source of dequantized tensors. A stream decodes band by band. It reads a window of
 * bands of the weight with the scales of their blocks: all of them if they are rows, but of groups, which
 * are columns of the weight, only some, so that memory does not grow with the weight. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "map/dequantize_internal.h"
#include "state/cast.h"

/* Of the weight, in a window of groups: columns, so that fewer of them take more reads. */
#define WINDOW_NBYTES ((uint64_t)512 << 10)

/* --- decoding --- */

typedef struct dequantize_stream {
    const dequantizer *v;
    const quant_pair *pair;
    uint64_t chunk;                  /* of the weight */
    const uint64_t *offsets, *sizes; /* of the weight's box */
    uint64_t bands, next_band;       /* the unit of decoding: a row, or a group of all rows */
    uint64_t window_bands, window_end;
    uint64_t row_nbytes; /* of the weight, in the window */
    uint8_t *bytes;      /* the window's rows */
    uint8_t *raw_scales; /* of the blocks that the window touches */
    float *scales;       /* of blocks of rows */
    uint64_t scale_columns;
    float *band;            /* of rows */
    uint16_t (*values)[16]; /* of groups: by scale and 4-bit float */
    uint16_t *decoded;      /* a band */
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
    const uint64_t rows = s->v->block.size[0], columns = s->v->block.size[1];
    const uint64_t block_row =
        (s->offsets[ndim - 2] + s->next_band) / rows - s->offsets[ndim - 2] / rows;
    const float *scale = s->scales + block_row * s->scale_columns;
    const dtype d = (dtype)catalogue_tensor(s->v->base, s->pair->weight)->dtype;
    cast_elements(d, DTYPE_FLOAT32, s->band, s->bytes + s->next_band * s->row_nbytes, n);
    for (uint64_t i = 0, left = columns - first % columns; i < n; left = columns, scale++)
        for (const uint64_t end = left < n - i ? i + left : n; i < end; i++)
            s->band[i] *= *scale;
    cast_elements(DTYPE_FLOAT32, DTYPE_BFLOAT16, s->decoded, s->band, n);
}

/* All values of 4-bit floats, as bfloat16. */
static void list_values(dequantize_stream *s)
{
    static const float values[16] = {+0.0f, +0.5f, +1.0f, +1.5f, +2.0f, +3.0f, +4.0f, +6.0f,
                                     -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    for (int e = 0; e < 256; e++) {
        float scaled[16];
        /* The scale is halved, as the largest is 2^128, which a float does not hold. */
        for (int i = 0; i < 16; i++)
            scaled[i] = values[i] * ldexpf(1, e - 128) * 2;
        cast_elements(DTYPE_FLOAT32, DTYPE_BFLOAT16, s->values[e], scaled, 16);
    }
}

/* One group of every row, with the two dims exchanged: as many rows as the group has values. Some rows
 * of the weight at a time, which stay in the cache. */
static void decode_mxfp4_group(dequantize_stream *s)
{
    const uint64_t n = s->sizes[3], rows = s->sizes[1];
    const uint64_t at = s->next_band + s->window_bands - s->window_end; /* in the window */
    for (uint64_t first = 0; first < rows; first += 64) {
        const uint64_t end = rows - first < 64 ? rows : first + 64;
        for (uint64_t i = 0; i < n; i++) {
            const uint8_t *bytes = s->bytes + at * n + i;
            const uint8_t *scales = s->raw_scales + at;
            uint16_t *low = s->decoded + 2 * i * rows, *high = low + rows;
            for (uint64_t r = first; r < end; r++) {
                const uint16_t *values = s->values[scales[r * s->scale_columns]];
                const uint8_t byte = bytes[r * s->row_nbytes];
                low[r] = values[byte & 15];
                high[r] = values[byte >> 4];
            }
        }
    }
}

/* Groups are the third dim of the weight. */
static unsigned band_dim(const dequantize_stream *s)
{
    return s->pair->kind == QUANT_MXFP4 ? 2 : weight_ndim(s) - 2;
}

/* --- windows --- */

/* Some bands of the weight. */
static void window_box(const dequantize_stream *s, uint64_t first, uint64_t bands,
                       uint64_t *offsets, uint64_t *sizes)
{
    const unsigned ndim = weight_ndim(s), dim = band_dim(s);
    memcpy(offsets, s->offsets, ndim * sizeof *offsets);
    memcpy(sizes, s->sizes, ndim * sizeof *sizes);
    offsets[dim] += first;
    sizes[dim] = bands;
}

/* From a box of the weight to that of its scales. */
static void scale_box(const dequantize_stream *s, uint64_t *offsets, uint64_t *sizes)
{
    const unsigned ndim = weight_ndim(s);
    for (unsigned i = 0; s->pair->kind == QUANT_FP8 && i < 2; i++) {
        const unsigned d = ndim - 2 + i;
        const uint64_t n = s->v->block.size[i], end = (offsets[d] + sizes[d] - 1) / n + 1;
        offsets[d] /= n;
        sizes[d] = end - offsets[d];
    }
}

/* Bands that are read at a time. */
static uint64_t window_bands(quant_kind kind, uint64_t nbytes, uint64_t bands)
{
    const uint64_t fit = WINDOW_NBYTES / (nbytes / bands);
    if (kind != QUANT_MXFP4 || fit >= bands)
        return bands;
    return fit > 0 ? fit : 1;
}

/* Of the buffers in bytes; 0: unused. Later windows have no more scales than the first. */
typedef struct stream_sizes {
    uint64_t bands, window_bands;
    uint64_t bytes, raw_scales, scales, band, values, decoded;
} stream_sizes;

static stream_sizes sizes_of(const dequantize_stream *s)
{
    const bool groups = s->pair->kind == QUANT_MXFP4;
    const cat_tensor *scale = catalogue_tensor(s->v->base, s->pair->scale);
    const uint64_t nbytes = box_nelems(s->sizes, weight_ndim(s));
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    stream_sizes n = {.bands = s->sizes[band_dim(s)]};
    n.window_bands = window_bands(s->pair->kind, nbytes, n.bands);
    window_box(s, 0, n.window_bands, offsets, sizes);
    scale_box(s, offsets, sizes);
    const uint64_t scales = box_nelems(sizes, scale->ndim);
    const uint64_t decoded = nbytes / n.bands * quant_packing(s->pair->kind);
    n.bytes = nbytes / n.bands * n.window_bands;
    n.raw_scales = scales * dtype_get((dtype)scale->dtype)->itemsize_bytes;
    n.scales = groups ? 0 : scales * sizeof *s->scales;
    n.band = groups ? 0 : decoded * sizeof *s->band;
    n.values = groups ? 256 * sizeof *s->values : 0;
    n.decoded = decoded * sizeof *s->decoded;
    return n;
}

/* The scales of a box of the weight; blocks of rows as floats. */
static fsdpck_status read_scales(dequantize_stream *s, uint64_t *offsets, uint64_t *sizes,
                                 fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(s->v->base, s->pair->scale);
    scale_box(s, offsets, sizes);
    s->scale_columns = sizes[t->ndim - 1];
    RETURN_IF(box_read(&s->v->reader, s->pair->scale, offsets, sizes, s->raw_scales, err));
    if (s->pair->kind == QUANT_FP8 && t->dtype == DTYPE_FLOAT32)
        memcpy(s->scales, s->raw_scales, box_nelems(sizes, t->ndim) * sizeof *s->scales);
    else if (s->pair->kind == QUANT_FP8)
        cast_elements((dtype)t->dtype, DTYPE_FLOAT32, s->scales, s->raw_scales,
                      box_nelems(sizes, t->ndim));
    return FSDPCK_OK;
}

/* The next bands. */
static fsdpck_status read_window(dequantize_stream *s, fsdpck_error *err)
{
    const unsigned ndim = weight_ndim(s), dim = band_dim(s);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    if (s->window_bands > s->bands - s->next_band)
        s->window_bands = s->bands - s->next_band;
    window_box(s, s->next_band, s->window_bands, offsets, sizes);
    s->window_end = s->next_band + s->window_bands;
    s->row_nbytes = box_nelems(sizes + dim, ndim - dim);
    if (s->pair->kind != QUANT_MXFP4)
        s->row_nbytes /= s->window_bands;
    RETURN_IF(box_read_chunk(&s->v->reader, s->chunk, offsets, sizes, s->bytes, err));
    return read_scales(s, offsets, sizes, err);
}

static fsdpck_status decode_band(dequantize_stream *s, fsdpck_error *err)
{
    if (s->next_band == s->window_end)
        RETURN_IF(read_window(s, err));
    if (s->pair->kind == QUANT_MXFP4)
        decode_mxfp4_group(s);
    else
        decode_fp8_row(s);
    s->next_band++;
    s->taken_nbytes = 0;
    return FSDPCK_OK;
}

static bool allocate(uint64_t nbytes, void **buffer)
{
    *buffer = nbytes > 0 ? malloc(nbytes) : NULL;
    return nbytes == 0 || *buffer != NULL;
}

static fsdpck_status begin_decoding(dequantize_stream *s, fsdpck_error *err)
{
    const stream_sizes n = sizes_of(s);
    s->bands = n.bands;
    s->window_bands = n.window_bands;
    s->decoded_nbytes = s->taken_nbytes = n.decoded;
    if (!allocate(n.bytes, (void **)&s->bytes) || !allocate(n.decoded, (void **)&s->decoded) ||
        !allocate(n.raw_scales, (void **)&s->raw_scales) ||
        !allocate(n.scales, (void **)&s->scales) || !allocate(n.band, (void **)&s->band) ||
        !allocate(n.values, (void **)&s->values))
        return error_set_nomem(err, n.bytes + n.decoded + n.raw_scales + n.scales + n.band);
    if (s->values != NULL)
        list_values(s);
    return read_window(s, err);
}

/* --- the source --- */

static const quant_chunk *chunk_of(const dequantizer *v, uint64_t chunk)
{
    return VEC_AT(&v->chunks, const quant_chunk, catalogue_chunk(v->out, chunk)->aux);
}

static bool same(const void *ctx, uint64_t chunk, uint64_t *of)
{
    const quant_chunk *k = chunk_of(ctx, chunk);
    *of = k->chunk;
    return k->pair == QUANT_NONE;
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

static void stream_close(source_stream *stream)
{
    dequantize_stream *s = (dequantize_stream *)stream;
    free(s->bytes);
    free(s->raw_scales);
    free(s->scales);
    free(s->band);
    free(s->values);
    free(s->decoded);
    free(s);
}

static void set_chunk(dequantize_stream *s, const dequantizer *v, uint64_t chunk)
{
    const quant_chunk *k = chunk_of(v, chunk);
    s->v = v;
    s->pair = VEC_AT(&v->pairs, const quant_pair, k->pair);
    s->offsets = VEC_AT(&v->boxes, const uint64_t, k->box);
    s->sizes = s->offsets + weight_ndim(s);
    s->chunk = k->chunk;
}

static fsdpck_status stream_begin(source_stream *stream, void *ctx, uint64_t chunk,
                                  fsdpck_error *err)
{
    dequantize_stream *s = (dequantize_stream *)stream;
    set_chunk(s, ctx, chunk);
    return begin_decoding(s, err);
}

static fsdpck_status stream_read(source_stream *stream, void *dst, uint64_t nbytes,
                                 fsdpck_error *err)
{
    dequantize_stream *s = (dequantize_stream *)stream;
    uint8_t *to = dst;
    while (nbytes > 0) {
        if (s->taken_nbytes == s->decoded_nbytes) {
            if (s->next_band == s->bands)
                return FAIL(err, INTERNAL, NONE, "read past the end of a dequantized chunk");
            RETURN_IF(decode_band(s, err));
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

static uint64_t stream_nbytes(void *ctx, uint64_t chunk)
{
    dequantize_stream s = {0};
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    set_chunk(&s, ctx, chunk);
    const stream_sizes n = sizes_of(&s);
    window_box(&s, 0, n.window_bands, offsets, sizes);
    const uint64_t weight = box_read_chunk_nbytes(&s.v->reader, s.chunk, offsets, sizes);
    scale_box(&s, offsets, sizes);
    const uint64_t scales = box_cursor_nbytes(&s.v->reader, s.pair->scale, offsets, sizes);
    /* Weight and scales are read one after the other. */
    return n.bytes + n.decoded + n.band + n.values + n.raw_scales + n.scales +
           (weight > scales ? weight : scales);
}

static const char *replica_of(void *ctx, uint64_t chunk)
{
    const source *s = &((const dequantizer *)ctx)->base_source;
    return s->replica_of == NULL ? NULL : s->replica_of(s->ctx, chunk_of(ctx, chunk)->chunk);
}

void dequantizer_set_source(dequantizer *v)
{
    static const derived_ops ops = {.same = same,
                                    .locate = locate,
                                    .stream_size = sizeof(dequantize_stream),
                                    .stream_begin = stream_begin,
                                    .stream_read = stream_read,
                                    .stream_close = stream_close,
                                    .stream_nbytes = stream_nbytes,
                                    .replica_of = replica_of};
    derived_source_init(&v->source, &ops, v, v->out, &v->base_source);
}
