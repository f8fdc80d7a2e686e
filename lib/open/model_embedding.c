#include "open/model_embedding.h"

#include <string.h>

#include "base/text.h"

static const char *name_of(const catalogue *c, size_t tensor, size_t *nbytes)
{
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    *nbytes = catalogue_name_nbytes(c, name);
    return catalogue_name(c, name);
}

/* Whether the weight's module has one of the names. PEFT moves the weight of a module with an adapter to its member
 * base_layer, and that of one that is trained whole to original_module. */
static bool is_weight_of(const char *name, size_t nbytes, const char *const *modules, size_t count)
{
    static const char *const ends[] = {".token_adapter.base_layer.weight", ".base_layer.weight",
                                       ".original_module.weight", ".weight"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (!text_ends_with(name, nbytes, ends[i]))
            continue;
        const size_t end = nbytes - strlen(ends[i]);
        size_t begin = end;
        while (begin > 0 && name[begin - 1] != '.')
            begin--;
        return text_is_one_of(name + begin, end - begin, modules, count);
    }
    return false;
}

bool model_is_head(const catalogue *c, size_t tensor)
{
    static const char *const head[] = {"lm_head"};
    size_t nbytes;
    const char *name = name_of(c, tensor, &nbytes);
    return is_weight_of(name, nbytes, head, 1);
}

/* Names that are the embedding's in every family. */
static bool is_sure_name(const char *name, size_t nbytes)
{
    static const char *const sure[] = {"embed_tokens", "wte"};
    return is_weight_of(name, nbytes, sure, sizeof sure / sizeof *sure);
}

/* Names that families have for it. Other tensors may have them too, of another shape. */
static bool is_usual_name(const char *name, size_t nbytes)
{
    static const char *const usual[] = {"embed_tokens",   "wte",        "word_embeddings",
                                        "tok_embeddings", "embed_in",   "shared",
                                        "word_embedding", "embeddings", "tokens_embed"};
    return is_weight_of(name, nbytes, usual, sizeof usual / sizeof *usual);
}

static bool has_stated_shape(const catalogue *c, const model_config *config, size_t tensor)
{
    const uint64_t stated[] = {config->numbers[MODEL_VOCAB_SIZE],
                               config->numbers[MODEL_HIDDEN_SIZE]};
    return stated[0] != 0 && stated[1] != 0 &&
           shape_equal(catalogue_shape(c, tensor), catalogue_tensor(c, tensor)->ndim, stated, 2);
}

/* 0: it is not the embedding; otherwise the more, the more probably it is. */
static unsigned likeness(const catalogue *c, const model_config *config, size_t tensor)
{
    size_t nbytes;
    const char *name = name_of(c, tensor, &nbytes);
    if (catalogue_tensor(c, tensor)->ndim != 2 || model_is_head(c, tensor))
        return 0;
    if (has_stated_shape(c, config, tensor))
        return is_usual_name(name, nbytes) ? 3 : 2;
    return is_sure_name(name, nbytes) ? 1 : 0;
}

/* The one with the shortest name: layers may have others. */
uint32_t model_embedding_find(const catalogue *c, const model_config *config, bool *is_certain)
{
    size_t least = 0, count = 0, nbytes;
    unsigned most = 0;
    uint32_t embedding = CAT_NONE;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const unsigned is = likeness(c, config, i);
        (void)name_of(c, i, &nbytes);
        count = is > most ? 1 : count + (is == most);
        if (is < most || is == 0 || (is == most && nbytes >= least))
            continue;
        most = is;
        least = nbytes;
        embedding = (uint32_t)i;
    }
    *is_certain = embedding != CAT_NONE && (most != 2 || count == 1);
    return embedding;
}
