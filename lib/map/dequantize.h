/* dequantize.h: presents a checkpoint of quantized weights as one of bfloat16 weights.
 *
 *     dequantizer *v;
 *     catalogue_init(&seen, &budget);
 *     RETURN_IF(dequantizer_new(&cat, &src, block, inputs, count, &seen, &v, err));   // seals `seen`
 *     dequantizer_source(v)
 *     dequantizer_free(v);       // before `seen`, `src` and `cat`
 *
 * Two kinds, as torch.distributed.checkpoint.quantized_hf_storage of torch 2.15 reads them:
 *   - X in an 8-bit float dtype with X_scale_inv, one number for each block of elements in the last two
 *     dims, 128 x 128 unless the model states others: float32(x) * scale, rounded to bfloat16. (DeepSeek-V3)
 *   - MXFP4: X_blocks [E, R, G, B], bytes of two 4-bit floats, the low one first, with X_scales
 *     [E, R, G], exponents with bias 127. X has the shape [E, G*B*2, R]: the last two dims are
 *     exchanged, as transformers does for gpt_oss.
 * The scales are no tensors of the second catalogue. All other inputs are unchanged. Files are the same
 * in both.
 *
 * Each chunk of a dequantized tensor is a stream of some MiB, so workers share a tensor.
 */
#ifndef FSDPCK_MAP_DEQUANTIZE_H
#define FSDPCK_MAP_DEQUANTIZE_H

#include "map/map_adapter.h"

typedef struct dequantizer dequantizer;

/* Blocks of 8-bit floats with one scale. */
typedef struct quant_blocks {
    uint64_t size[2]; /* rows and columns, not 0 */
    bool is_stated;   /* by config.json */
} quant_blocks;

/* Whether some input may be quantized, by its dtype or name. */
bool dequantizer_applies(const catalogue *base, const map_input *inputs, size_t count);
/* `base` must be sealed; `out` must be initialized and empty. Tensors of `base` that are no input are
 * the caller's concern. Errors: BADINPUT (QUANT-SCALE) for a scale that does not fit its tensor,
 * UNSUPPORTED (QUANT-KIND) for other kinds of quantization. */
fsdpck_status dequantizer_new(const catalogue *base, const source *src, quant_blocks block,
                              const map_input *inputs, size_t count, catalogue *out,
                              dequantizer **dq, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether dequantizer_new would find the weights and scales; the same errors. */
fsdpck_status dequantizer_check(const catalogue *base, const source *src, quant_blocks block,
                                const map_input *inputs, size_t count,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
const source *dequantizer_source(const dequantizer *v);
/* Number of tensors that are dequantized. */
uint64_t dequantizer_count(const dequantizer *v);
/* The tensor of the second catalogue that equals a tensor of the first; else CAT_NONE. */
uint32_t dequantizer_same(const dequantizer *v, uint32_t base_tensor);
void dequantizer_free(dequantizer *v);

#endif
