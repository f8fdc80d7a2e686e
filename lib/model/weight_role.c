#include "model/weight_role.h"

#include <string.h>

#include "base/text.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const tables[] = {"embed_tokens.weight", "wte.weight", "lm_head.weight",
                                     "word_embeddings.weight"};
static const char *const norms[] = {"input_layernorm.weight",
                                    "post_attention_layernorm.weight",
                                    "model.norm.weight",
                                    "ln_1.weight",
                                    "ln_2.weight",
                                    "ln_f.weight"};
/* Parts of names of other models in the same checkpoint. */
static const char *const towers[] = {"vision", "visual", "audio", "encoder", "lora"};

/* Whole parts: 'pos_wte.weight' is not 'wte.weight'. */
static bool ends_with_parts(const char *name, size_t nbytes, const char *const *ends, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const size_t n = strlen(ends[i]);
        if (text_ends_with(name, nbytes, ends[i]) && (nbytes == n || name[nbytes - n - 1] == '.'))
            return true;
    }
    return false;
}

weight_role weight_role_of(const char *name)
{
    const size_t nbytes = strlen(name);
    for (size_t i = 0; i < COUNT(towers); i++)
        if (strstr(name, towers[i]) != NULL)
            return WEIGHT_OTHER;
    if (ends_with_parts(name, nbytes, tables, COUNT(tables)))
        return WEIGHT_TABLE;
    return ends_with_parts(name, nbytes, norms, COUNT(norms)) ? WEIGHT_NORM : WEIGHT_OTHER;
}
