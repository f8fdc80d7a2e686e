#include "open/model_names.h"

#include "statedict/shard_metadata.h"

static const char *twin(const void *ctx, const char *name, size_t nbytes, unsigned k,
                        size_t *alias_nbytes)
{
    return ctx == NULL ? NULL : description_alias(ctx, name, nbytes, k, alias_nbytes);
}

open_names model_names(const description_match *match)
{
    return (open_names){.ctx = match, .twin = twin, .states_units = shard_metadata_is};
}
