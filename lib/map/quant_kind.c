/* quant_kind.c: kinds of quantized tensors that --dequantize does not convert. */
#include "base/text.h"
#include "map/dequantize_internal.h"

/* Ends of names of the data and of the numbers that belong to it. */
static const struct {
    const char *end, *kind;
} other_kinds[] = {
    {".qweight", "GPTQ or AWQ"},
    {".qzeros", "GPTQ or AWQ"},
    {".weight_packed", "compressed-tensors"},
    {".weight_shape", "compressed-tensors"},
    {".weight_zero_point", "compressed-tensors"},
    {".weight_global_scale", "compressed-tensors"},
    {".weight_scale", "compressed-tensors, ModelOpt, FBGEMM or BitNet"},
    {".weight_scale_2", "ModelOpt"},
    {".weight_scales", "EETQ"},
    {".absmax", "bitsandbytes"},
    {".quant_map", "bitsandbytes"},
    {".SCB", "bitsandbytes"},
    {"_qdata", "torchao"},
    {".W_q", "HQQ"},
    {".weight._data", "quanto"},
    {".codebooks", "AQLM"},
};

/* Masks of old models: ".attn.bias" of GPT-2, ".causal_mask". */
static bool is_mask(const map_input *in)
{
    return text_ends_with(in->name, in->nbytes, ".bias") ||
           text_ends_with(in->name, in->nbytes, "mask");
}

const char *quant_named_kind(const map_input *in)
{
    for (size_t i = 0; i < sizeof other_kinds / sizeof other_kinds[0]; i++)
        if (text_ends_with(in->name, in->nbytes, other_kinds[i].end))
            return other_kinds[i].kind;
    return NULL;
}

bool quant_is_packed(const map_input *in, const cat_tensor *t)
{
    const dtype d = (dtype)t->dtype;
    return t->ndim >= 2 && dtype_get(d)->itemsize_bytes == 1 && d != DTYPE_BOOL && !is_mask(in);
}
