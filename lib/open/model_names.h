/* model_names.h: what a model description, or the checkpoint itself, says of names, for readers. They
 * keep what a rank's files hold and ask this where one tensor for all ranks would lose something.
 *
 *     known_names k;
 *     known_names_init(&k, &agree, NULL); // NULL: there is no description; there are no units
 *     request.names = &k.names;           // k outlives the request
 */
#ifndef FSDPCK_OPEN_MODEL_NAMES_H
#define FSDPCK_OPEN_MODEL_NAMES_H

#include "formats/format.h"
#include "model/unit.h"
#include "statedict/description_match.h"

typedef struct known_names {
    open_names names;
    const agree *agree;
    const unit_list *units;
} known_names;

void known_names_init(known_names *k, const agree *a, const unit_list *units);

#endif
