#include "open/model_names.h"

#include <string.h>

#include "statedict/shard_metadata.h"

static bool is_local(const void *ctx, const char *name, size_t nbytes)
{
    const known_names *k = ctx;
    return k->agree != NULL && description_is_local(k->agree, name, nbytes);
}

static bool is_shard(const void *ctx, const char *name)
{
    const known_names *k = ctx;
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
    const known_names *known = ctx;
    return known->agree == NULL ? NULL
                                : description_alias(known->agree, name, nbytes, k, alias_nbytes);
}

void known_names_init(known_names *k, const agree *a, const unit_list *units)
{
    *k = (known_names){.names = {.ctx = k,
                                 .is_local = is_local,
                                 .is_shard = is_shard,
                                 .twin = twin,
                                 .states_units = shard_metadata_is},
                       .agree = a,
                       .units = units};
}
