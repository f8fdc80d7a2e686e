#include "open/model_embedding.h"

#include <string.h>

#include "lora/lora.h"

static const char *name_of(const catalogue *c, size_t tensor, size_t *nbytes)
{
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    *nbytes = catalogue_name_nbytes(c, name);
    return catalogue_name(c, name);
}

bool model_is_head(const catalogue *c, size_t tensor)
{
    static const char *const head[] = {"lm_head"};
    size_t nbytes;
    const char *name = name_of(c, tensor, &nbytes);
    return lora_is_weight_of(name, nbytes, head, 1);
}

/* Names that are the embedding's in every family. */
static bool is_sure_name(const char *name, size_t nbytes)
{
    static const char *const sure[] = {"embed_tokens", "wte"};
    return lora_is_weight_of(name, nbytes, sure, sizeof sure / sizeof *sure);
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
        return lora_is_embedding_weight(name, nbytes) ? 3 : 2;
    return is_sure_name(name, nbytes) ? 1 : 0;
}

/* CAT_NONE: none, or several. */
static uint32_t find_only(const catalogue *c, const char *module)
{
    uint32_t found = CAT_NONE;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        size_t nbytes;
        const char *name = name_of(c, i, &nbytes);
        if (!lora_is_weight_of(name, nbytes, &module, 1))
            continue;
        if (found != CAT_NONE)
            return CAT_NONE;
        found = (uint32_t)i;
    }
    return found;
}

uint32_t model_embedding_find_named(const catalogue *c, const model_config *config)
{
    const char *module = model_ties_module(config->model_type);
    return module == NULL ? CAT_NONE : find_only(c, module);
}

/* Without a known name, the one with the shortest: layers may have others. */
uint32_t model_embedding_find(const catalogue *c, const model_config *config, bool *is_certain)
{
    size_t least = 0, count = 0, nbytes;
    unsigned most = 0;
    uint32_t embedding = model_embedding_find_named(c, config);
    if (embedding != CAT_NONE && catalogue_tensor(c, embedding)->ndim == 2) {
        *is_certain = true;
        return embedding;
    }
    embedding = CAT_NONE;
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

bool model_embedding_may_be_tied(const catalogue *c, const model_config *config, uint32_t embedding)
{
    return model_ties_module(config->model_type) == NULL ||
           model_embedding_find_named(c, config) == embedding;
}

bool model_embedding_find_tied(const catalogue *c, const model_config *config, uint32_t *head,
                               uint32_t *embedding)
{
    if (config->ties != MODEL_TIES_YES)
        return false;
    *head = find_only(c, "lm_head");
    *embedding = model_embedding_find_named(c, config);
    return *head != CAT_NONE && *embedding != CAT_NONE;
}
