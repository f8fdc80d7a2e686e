#include "verify/model_facts.h"

#include <string.h>

#include "base/text.h"
#include "open/model_embedding.h"

/* --- the embedding --- */

static const char *name_of(const catalogue *c, size_t tensor, size_t *nbytes)
{
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    *nbytes = catalogue_name_nbytes(c, name);
    return catalogue_name(c, name);
}

/* The length of the name before its last `parts` parts. */
static size_t parent_nbytes(const char *name, size_t nbytes, unsigned parts)
{
    for (; nbytes > 0; nbytes--)
        if (name[nbytes - 1] == '.' && parts-- == 1)
            return nbytes;
    return 0;
}

static void find_same_embedding(model_facts *f, const model_facts *base)
{
    size_t nbytes;
    if (base->embedding != CAT_NONE) {
        const char *name = name_of(base->cat, base->embedding, &nbytes);
        f->embedding = catalogue_find(f->cat, name, nbytes);
        f->is_certain = f->embedding != CAT_NONE && base->is_certain;
    }
    if (f->embedding != CAT_NONE && catalogue_tensor(f->cat, f->embedding)->ndim != 2) {
        f->embedding = CAT_NONE;
        f->is_certain = false;
    }
}

/* --- layers --- */

/* The number after `layers.` beside the embedding, plus 1; 0 if the name has none. */
static uint64_t layers_of(const catalogue *c, const char *parent, size_t parent_n, size_t tensor)
{
    static const char *const words[] = {"layers.", "h.", "blocks."};
    size_t nbytes, at = 0;
    uint64_t number = 0;
    const char *text = name_of(c, tensor, &nbytes);
    if (nbytes <= parent_n || memcmp(text, parent, parent_n) != 0)
        return 0;
    for (size_t i = 0; i < sizeof words / sizeof *words && at == 0; i++)
        if (nbytes > parent_n + strlen(words[i]) &&
            memcmp(text + parent_n, words[i], strlen(words[i])) == 0)
            at = parent_n + strlen(words[i]);
    const size_t first = at;
    for (; at > 0 && at < nbytes && at < first + 9 && text[at] >= '0' && text[at] <= '9'; at++)
        number = 10 * number + (uint64_t)(text[at] - '0');
    return at > first && at < nbytes && text[at] == '.' ? number + 1 : 0;
}

static void count_layers(model_facts *f)
{
    size_t nbytes;
    const char *parent = name_of(f->cat, f->embedding, &nbytes);
    const size_t parent_n = parent_nbytes(parent, nbytes, 2);
    for (size_t i = 0; i < catalogue_tensor_count(f->cat); i++) {
        const uint64_t layers = layers_of(f->cat, parent, parent_n, i);
        if (layers > f->numbers[MODEL_HIDDEN_LAYERS])
            f->numbers[MODEL_HIDDEN_LAYERS] = layers;
    }
}

model_facts model_facts_of(const catalogue *c, const model_config *config, const model_facts *base)
{
    const dtype usual = like_output_usual(c);
    model_facts f = {.cat = c, .config = config, .embedding = CAT_NONE, .head = CAT_NONE};
    if (base != NULL)
        find_same_embedding(&f, base);
    if (f.embedding == CAT_NONE)
        f.embedding = model_embedding_find(c, config, &f.is_certain);
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        f.head = model_is_head(c, i) ? (uint32_t)i : f.head;
        f.usual = catalogue_tensor(c, i)->dtype == usual ? usual : f.usual;
    }
    if (f.embedding == CAT_NONE)
        return f;
    f.numbers[MODEL_VOCAB_SIZE] = catalogue_shape(c, f.embedding)[0];
    f.numbers[MODEL_HIDDEN_SIZE] = catalogue_shape(c, f.embedding)[1];
    count_layers(&f);
    return f;
}
