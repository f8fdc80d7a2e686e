/* model_embedding.h: the embedding of a model folder, under any name, and its output projection. */
#ifndef FSDPCK_OPEN_MODEL_EMBEDDING_H
#define FSDPCK_OPEN_MODEL_EMBEDDING_H

#include "open/model_config.h"
#include "state/catalogue.h"

/* A matrix of the shape that config.json states, or one by its name; CAT_NONE: none. *is_certain: no other tensor
 * may be the embedding. */
uint32_t model_embedding_find(const catalogue *c, const model_config *config, bool *is_certain);

/* Whether a tensor is the output projection (lm_head), by its name. */
bool model_is_head(const catalogue *c, size_t tensor);

#endif
