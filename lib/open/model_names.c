#include "open/model_names.h"

#include <string.h>

#include "statedict/shard_metadata.h"

static bool is_local(const void *ctx, const char *name, size_t nbytes)
{
    const model_names *k = ctx;
    return k->match != NULL && description_is_local(k->match, name, nbytes);
}

static bool is_shard(const void *ctx, const char *name)
{
    const model_names *k = ctx;
    while (k->units != NULL && name != NULL) {
        const unit *u = unit_list_find(k->units, name, strlen(name));
        if (u != NULL && u->keyed)
            return true;
        name = strchr(name, '.');
        name = name == NULL ? NULL : name + 1;
    }
    return false;
}

static const char *twin(const void *ctx, const char *name, size_t nbytes, unsigned k,
                        size_t *alias_nbytes)
{
    const model_names *known = ctx;
    return known->match == NULL ? NULL
                                : description_alias(known->match, name, nbytes, k, alias_nbytes);
}

void model_names_init(model_names *k, const description_match *a, const unit_list *units)
{
    *k = (model_names){.names = {.ctx = k,
                                 .is_local = is_local,
                                 .is_shard = is_shard,
                                 .twin = twin,
                                 .states_units = shard_metadata_is},
                       .match = a,
                       .units = units};
}
