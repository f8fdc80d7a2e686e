/* config_shapes.h: shapes of a model's tensors against the numbers in its config.json, for model types of transformers
 * whose shapes are known. */
#ifndef FSDPCK_OPEN_CONFIG_SHAPES_H
#define FSDPCK_OPEN_CONFIG_SHAPES_H

#include "base/log.h"
#include "open/model_config.h"
#include "state/catalogue.h"

/* Warns (EXPORT-CONFIG) of the first tensor that contradicts config.json: an embedding of another size, also one of a
 * resized vocabulary, a projection of another size, and norms of another type. Quantized models, those with a class
 * of their own, and parts of models of images or speech are not judged. */
void config_shapes_warn(const catalogue *c, const model_config *config, const logger *log);
/* Of a module Dense of sentence-transformers: its weight is lost (EXPORT-KEYS), or has another shape. path: its folder. */
void config_shapes_warn_dense(const catalogue *c, const model_config *config, const char *path,
                              const logger *log);

#endif
