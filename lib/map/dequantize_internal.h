/* dequantize_internal.h: what the files of dequantizing share:
 *
 *     dequantize.c        pairs of weights and scales, the second catalogue
 *     dequantize_read.c   its source: reads and decodes
 */
#ifndef FSDPCK_MAP_DEQUANTIZE_INTERNAL_H
#define FSDPCK_MAP_DEQUANTIZE_INTERNAL_H

#include "map/dequantize.h"
#include "state/box_read.h"
#include "state/derived_source.h"

/* Elements in one chunk of the second catalogue. Those of MXFP4 are larger: only whole columns of the
 * weight are whole rows of the target. */
#define QUANT_FP8_NELEMS   ((uint64_t)1 << 19)
#define QUANT_MXFP4_NELEMS ((uint64_t)1 << 25)
#define QUANT_NONE         UINT32_MAX

typedef enum quant_kind { QUANT_FP8, QUANT_MXFP4 } quant_kind;

/* A weight of the first catalogue with its scale. */
typedef struct quant_pair {
    uint32_t weight;
    uint32_t scale;
    quant_kind kind;
} quant_pair;

/* A chunk of the second catalogue, by its aux. */
typedef struct quant_chunk {
    uint64_t chunk; /* of the first catalogue */
    uint32_t pair;  /* QUANT_NONE: the same chunk */
    uint32_t box;   /* of the weight, in `boxes`: ndim offsets, then ndim sizes */
} quant_chunk;

struct dequantizer {
    const catalogue *base;
    source base_source;
    box_reader reader; /* of the first catalogue; with the scales */
    catalogue *out;
    quant_blocks block; /* of 8-bit floats */
    vec pairs;          /* quant_pair */
    vec chunks;         /* quant_chunk */
    vec boxes;          /* uint64_t */
    vec same;           /* uint32_t: tensor of `out` plus 1, by tensor of the first catalogue */
    derived_source source;
};

/* Elements of bfloat16 in one element of the weight: bytes of MXFP4 have two. */
static inline uint64_t quant_packing(quant_kind kind)
{
    return kind == QUANT_MXFP4 ? 2 : 1;
}

/* quant_kind.c: the program that quantized a tensor, of kinds that are not converted, by its name; or NULL. */
const char *quant_named_kind(const map_input *in);
/* Whether a tensor has elements of one byte, as weights have only if they are quantized. */
bool quant_is_packed(const map_input *in, const cat_tensor *t);

/* Sets v->source. */
void dequantizer_set_source(dequantizer *v);

#endif
