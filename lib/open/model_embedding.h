/* model_embedding.h: the embedding of a model folder, under any name, and its output projection. */
#ifndef FSDPCK_OPEN_MODEL_EMBEDDING_H
#define FSDPCK_OPEN_MODEL_EMBEDDING_H

#include "open/model_config.h"
#include "state/catalogue.h"

/* The one of the name that transformers has for the model type; else a matrix of the shape that config.json states, or one
 * by names of all types; CAT_NONE: none. *is_certain: no other tensor may be the embedding. */
uint32_t model_embedding_find(const catalogue *c, const model_config *config, bool *is_certain);

/* The one of the name that transformers has for the model type; CAT_NONE: none, or several. */
uint32_t model_embedding_find_named(const catalogue *c, const model_config *config);

/* Whether the output projection may be tied to this one: not where transformers has a name for it that another tensor, or
 * none, has. A class of the type, such as BigBirdPegasusForCausalLM, may lack the embedding and tie nothing. */
bool model_embedding_may_be_tied(const catalogue *c, const model_config *config,
                                 uint32_t embedding);

/* The output projection and the embedding that config.json ties, by the names that transformers has for the model type.
 * False: it ties none, the type is unknown, or there is not exactly one of each. */
bool model_embedding_find_tied(const catalogue *c, const model_config *config, uint32_t *head,
                               uint32_t *embedding);

/* Whether a tensor is the output projection (lm_head), by its name. */
bool model_is_head(const catalogue *c, size_t tensor);

#endif
