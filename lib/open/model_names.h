/* model_names.h: a model's names, from its description or the checkpoint itself, for readers. They keep
 * each rank's tensors and ask this if one tensor for all ranks would lose data.
 *
 *     model_names k;
 *     model_names_init(&k, &agree, NULL); // NULL: there is no description; there are no units
 *     request.names = &k.names;           // k outlives the request
 */
#ifndef FSDPCK_OPEN_MODEL_NAMES_H
#define FSDPCK_OPEN_MODEL_NAMES_H

#include "formats/format.h"
#include "model/unit.h"
#include "statedict/description_match.h"

typedef struct model_names {
    open_names names;
    const description_match *match;
    const unit_list *units;
} model_names;

void model_names_init(model_names *k, const description_match *a, const unit_list *units);

#endif
