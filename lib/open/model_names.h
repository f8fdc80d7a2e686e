/* model_names.h: a model's names, from its description or the checkpoint itself, for readers.
 *
 *     model_names k;
 *     model_names_init(&k, &match); // NULL: there is no description
 *     request.names = &k.names;     // k outlives the request
 */
#ifndef FSDPCK_OPEN_MODEL_NAMES_H
#define FSDPCK_OPEN_MODEL_NAMES_H

#include "formats/format.h"
#include "statedict/description_match.h"

typedef struct model_names {
    open_names names;
    const description_match *match;
} model_names;

void model_names_init(model_names *k, const description_match *a);

#endif
