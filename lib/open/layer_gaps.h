/* layer_gaps.h: tensors that the layers of a model of transformers lack, by its names and its config.json. */
#ifndef FSDPCK_OPEN_LAYER_GAPS_H
#define FSDPCK_OPEN_LAYER_GAPS_H

#include "base/log.h"
#include "open/model_config.h"
#include "state/catalogue.h"

/* Warns (EXPORT-KEYS) of layers without tensors, of tensors that other layers of the same kind have, and of a lost
 * embedding, final norm or output projection; or of a model without any layer, if its model type is known. Names of other
 * programs and parts of models are not judged. is_export: transformers saved it; of others, only stacks whose names begin
 * with "model." or the model type are judged, and no tensors outside the layers: a module may contain the model without its
 * head, or name another root "model". */
fsdpck_status layer_gaps_warn(const catalogue *c, const model_config *config, bool is_export,
                              const logger *log, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The latter warning, for weights that are known to be something else. */
void layer_gaps_warn_none(const model_config *config, const logger *log);

#endif
