/* layer_words.h: model types of transformers whose layers are known, and the names of layers. */
#ifndef FSDPCK_OPEN_LAYER_WORDS_H
#define FSDPCK_OPEN_LAYER_WORDS_H

#include "open/model_config.h"

#define LAYER_LISTS_MAX 2

/* A row of layer_words.def. */
typedef struct layer_type {
    const char *type, *word;
    bool has_stacks; /* an encoder's and a decoder's */
    const char
        *lists[LAYER_LISTS_MAX]; /* members of config.json with the kind of each layer, then NULL */
} layer_type;

/* The first row of a model type, or NULL. */
const layer_type *layer_type_of(const char *model_type);
/* Whether a name has the word for the layers of the type. */
bool layer_type_names(const char *model_type, const char *name);

/* The length of 'model.layers.' in 'model.layers.3.mlp.up_proj.weight': the name up to the first number. 0 if it does not end
 * in a word for layers. *in_module: a module of the layer has the tensor, not the layer itself, as in 'layers.0.weight'. */
size_t layer_stack_length(const char *name, bool *in_module);

/* The number of layers of an encoder, a decoder or another stack beside others, by its prefix; 0: not known. */
uint64_t layer_stack_count(const model_config *config, const char *prefix);

#endif
