#include "open/model_names.h"

#include "statedict/shard_metadata.h"

static const char *twin(const void *ctx, const char *name, size_t nbytes, unsigned k,
                        size_t *alias_nbytes)
{
    const model_names *known = ctx;
    return known->match == NULL ? NULL
                                : description_alias(known->match, name, nbytes, k, alias_nbytes);
}

void model_names_init(model_names *k, const description_match *a)
{
    *k = (model_names){.names = {.ctx = k, .twin = twin, .states_units = shard_metadata_is},
                       .match = a};
}
