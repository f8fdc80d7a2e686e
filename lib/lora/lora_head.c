/* lora_head.c: names of weights that models of transformers tie to their embedding.
 * Source: transformers 5.23.0 (_tied_weights_keys of models/). */
#include <string.h>

#include "base/text.h"
#include "lora/lora.h"
#include "lora/lora_internal.h"

bool lora_is_head(const char *path, size_t nbytes)
{
    static const char *const ends[] = {
        "lm_head",           "lm_head.decoder",     "lm_head.out_proj",  "proj_out",
        "generator_lm_head", "predictions.decoder", "mlm_score.decoder", "head.decoder",
        "output_projection", "vocab_projector",     "pred_layer.proj",   "lm_loss",
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

/* The bytes of the path of the module in the name of its weight; 0: it is no weight. PEFT moves the weight of a module with
 * an adapter to its member base_layer, and that of one that is trained whole to original_module. */
static size_t module_of_weight(const char *name, size_t nbytes)
{
    static const char *const ends[] = {".token_adapter.base_layer.weight", ".base_layer.weight",
                                       ".original_module.weight", ".weight"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (text_ends_with(name, nbytes, ends[i]))
            return nbytes - strlen(ends[i]);
    return 0;
}

bool lora_is_head_weight(const char *name, size_t nbytes)
{
    const size_t end = module_of_weight(name, nbytes);
    return end > 0 && lora_is_head(name, end);
}

bool lora_is_weight_of(const char *name, size_t nbytes, const char *const *modules, size_t count)
{
    const size_t end = module_of_weight(name, nbytes);
    size_t begin = end;
    while (begin > 0 && name[begin - 1] != '.')
        begin--;
    return end > 0 && text_is_one_of(name + begin, end - begin, modules, count);
}

bool lora_is_embedding_weight(const char *name, size_t nbytes)
{
    static const char *const usual[] = {"embed_tokens",   "wte",        "word_embeddings",
                                        "tok_embeddings", "embed_in",   "shared",
                                        "word_embedding", "embeddings", "tokens_embed"};
    return lora_is_weight_of(name, nbytes, usual, sizeof usual / sizeof *usual);
}

size_t lora_head_path(const char *name, size_t nbytes, const char **path)
{
    const size_t prefix = lora_name_prefix(name, nbytes);
    size_t at = 0, begin, end, found = 0;
    *path = name + prefix;
    while (lora_name_next(*path, nbytes - prefix, &at, &begin, &end))
        if (prefix + end < nbytes && lora_is_head(*path, end))
            found = end;
    return found;
}

/* Models of an encoder and a decoder have one embedding, and a module for it in both. */
static bool is_copy_of_shared(const char *path, size_t nbytes)
{
    return text_ends_with(path, nbytes, "encoder.embed_tokens") ||
           text_ends_with(path, nbytes, "decoder.embed_tokens");
}

size_t lora_copy_path(const char *name, size_t nbytes, const char **path)
{
    const size_t prefix = lora_name_prefix(name, nbytes);
    size_t at = 0, begin, end;
    *path = name + prefix;
    while (lora_name_next(*path, nbytes - prefix, &at, &begin, &end))
        if (prefix + end < nbytes && is_copy_of_shared(*path, end))
            return end;
    return 0;
}

/* ---- trainable tokens ---- */

/* PEFT compares ends of texts. A list is for the embedding of the model. */
static bool is_named(const lora_config *config, const char *path)
{
    const strtab *names = &config->token_names;
    for (uint32_t i = 0; i < strtab_count(names); i++)
        if (strtab_nbytes(names, i) > 0 &&
            text_ends_with(path, strlen(path), strtab_text(names, i)))
            return true;
    return false;
}

/* The embedding that the config names: the one with the shortest path. */
static uint32_t find_embedding(const lora_set *set, const lora_config *config, uint32_t adapter)
{
    const bool is_list = strtab_count(&config->token_names) == 0;
    uint32_t found = LORA_NONE;
    size_t least = SIZE_MAX;
    for (uint32_t i = 0; i < lora_module_count(set); i++) {
        const lora_module *m = lora_module_at(set, i);
        const char *path = lora_text(set, m->path);
        const size_t n = strlen(path) + (is_copy_of_shared(path, strlen(path)) ? SIZE_MAX / 2 : 0);
        if (m->adapter != adapter || m->kind != LORA_TOKENS || lora_is_head(path, strlen(path)) ||
            n >= least || !(is_list || is_named(config, path)))
            continue;
        found = i;
        least = n;
    }
    return found;
}

/* Whether two tensors are one storage. */
static bool is_shared(const lora_set *set, const catalogue *c, const lora_module *m,
                      const lora_module *other)
{
    const uint32_t a = lora_cat_tensor(set, m->tokens), b = lora_cat_tensor(set, other->tokens);
    return a != CAT_NONE && b != CAT_NONE && catalogue_tensor(c, a)->alias != CAT_NONE &&
           catalogue_tensor(c, a)->alias == catalogue_tensor(c, b)->alias;
}

uint32_t lora_tokens_owner(const lora_set *set, const catalogue *c, const lora_config *config,
                           uint32_t module)
{
    const lora_module *m = lora_module_at(set, module);
    if (config == NULL || !config->has_tokens || m->kind != LORA_TOKENS)
        return module;
    const uint32_t owner = find_embedding(set, config, m->adapter);
    if (owner == LORA_NONE || owner == module)
        return module;
    const bool named = is_named(config, lora_text(set, m->path));
    return !named || is_shared(set, c, m, lora_module_at(set, owner)) ? owner : module;
}
