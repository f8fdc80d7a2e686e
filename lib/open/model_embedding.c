#include "open/model_embedding.h"

#include "base/text.h"

static const char *name_of(const catalogue *c, size_t tensor, size_t *nbytes)
{
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    *nbytes = catalogue_name_nbytes(c, name);
    return catalogue_name(c, name);
}

bool model_is_head(const catalogue *c, size_t tensor)
{
    size_t nbytes;
    const char *name = name_of(c, tensor, &nbytes);
    return text_is(name, nbytes, "lm_head.weight") ||
           text_ends_with(name, nbytes, ".lm_head.weight");
}

/* Where they begin; 0: the name has no more. */
static size_t last_two_parts(const char *name, size_t nbytes)
{
    unsigned parts = 2;
    for (; nbytes > 0; nbytes--)
        if (name[nbytes - 1] == '.' && parts-- == 1)
            return nbytes;
    return 0;
}

/* Names that are the embedding's in every family. */
static bool is_sure_name(const char *name, size_t nbytes)
{
    static const char *const sure[] = {"embed_tokens.weight", "wte.weight"};
    const size_t at = last_two_parts(name, nbytes);
    return TEXT_IS_IN(name + at, nbytes - at, sure);
}

/* Names that families have for it. Other tensors may have them too, of another shape. */
static bool is_usual_name(const char *name, size_t nbytes)
{
    static const char *const usual[] = {
        "embed_tokens.weight",   "wte.weight",        "word_embeddings.weight",
        "tok_embeddings.weight", "embed_in.weight",   "shared.weight",
        "word_embedding.weight", "embeddings.weight", "tokens_embed.weight"};
    const size_t at = last_two_parts(name, nbytes);
    return TEXT_IS_IN(name + at, nbytes - at, usual);
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
