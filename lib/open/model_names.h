/* model_names.h: a model's names, from its description or the checkpoint itself, for readers.
 *
 *     const open_names names = model_names(&match); // NULL: there is no description
 *     request.names = &names;                       // both outlive the request
 */
#ifndef FSDPCK_OPEN_MODEL_NAMES_H
#define FSDPCK_OPEN_MODEL_NAMES_H

#include "formats/format.h"
#include "statedict/description_match.h"

open_names model_names(const description_match *match);

#endif
