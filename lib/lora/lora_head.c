/* lora_head.c: names of weights that models of transformers tie to their embedding.
 * Source: transformers 5.23.0 (_tied_weights_keys of models/). */
#include <string.h>

#include "base/text.h"
#include "lora/lora.h"
#include "lora/lora_internal.h"

bool lora_is_head(const char *path, size_t nbytes)
{
    static const char *const ends[] = {
        "lm_head",           "lm_head.decoder",   "lm_head.out_proj", "proj_out",
        "generator_lm_head", "predictions.decoder", "mlm_score.decoder", "head.decoder",
        "output_projection", "vocab_projector",   "pred_layer.proj",  "lm_loss",
        "embed_out"};
    static const char *const whole[] = {"decoder", "output", "head"};
    if (TEXT_IS_IN(path, nbytes, whole))
        return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);
        if (text_ends_with(path, nbytes, ends[i]) && (n == nbytes || path[nbytes - n - 1] == '.'))
            return true;
    }
    return false;
}

bool lora_is_head_weight(const char *name, size_t nbytes)
{
    static const char weight[] = ".weight";
    return text_ends_with(name, nbytes, weight) && lora_is_head(name, nbytes - sizeof weight + 1);
}

/* Models of an encoder and a decoder have one embedding, and a module for it in both. */
static bool is_copy_of_shared(const char *path, size_t nbytes)
{
    static const char *const ends[] = {"encoder.embed_tokens", "decoder.embed_tokens"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);
        if (text_ends_with(path, nbytes, ends[i]) && (n == nbytes || path[nbytes - n - 1] == '.'))
            return true;
    }
    return false;
}

size_t lora_tied_path(const char *name, size_t nbytes, bool shared, const char **path)
{
    const size_t prefix = lora_name_prefix(name, nbytes);
    size_t at = 0, begin, end, found = 0;
    *path = name + prefix;
    while (lora_name_next(*path, nbytes - prefix, &at, &begin, &end))
        if (prefix + end < nbytes &&
            (lora_is_head(*path, end) || (shared && is_copy_of_shared(*path, end))))
            found = end;
    return found;
}
