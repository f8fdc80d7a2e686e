/* model_embedding.h: the embedding of a model folder, under any name, and its output projection. */
#ifndef FSDPCK_OPEN_MODEL_EMBEDDING_H
#define FSDPCK_OPEN_MODEL_EMBEDDING_H

#include "open/model_config.h"
#include "state/catalogue.h"

/* A matrix of the shape that config.json states, or one by its name; CAT_NONE: none. *is_certain: no other tensor
 * may be the embedding. */
uint32_t model_embedding_find(const catalogue *c, const model_config *config, bool *is_certain);

/* The output projection and the embedding that config.json ties, by the names that transformers has for the model type.
 * False: it ties none, the type is unknown, or there is not exactly one of each. */
bool model_embedding_find_tied(const catalogue *c, const model_config *config, uint32_t *head,
                               uint32_t *embedding);

/* Whether a tensor is the output projection (lm_head), by its name. */
bool model_is_head(const catalogue *c, size_t tensor);

#endif
