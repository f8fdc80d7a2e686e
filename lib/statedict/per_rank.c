#include "statedict/per_rank.h"

#include <string.h>

#include "model/unit.h"
#include "statedict/description_match.h"

/* Whether the last parts of the name are the key of a unit. */
static bool is_unit_key(const unit_list *units, const char *name)
{
    while (units != NULL && name != NULL) {
        const unit *u = unit_list_find(units, name, strlen(name));
        if (u != NULL && u->keyed)
            return true;
        name = strchr(name, '.');
        name = name == NULL ? NULL : name + 1;
    }
    return false;
}

static bool is_flat_name(const char *name)
{
    const char *last = strrchr(name, '.') == NULL ? name : strrchr(name, '.') + 1;
    return strncmp(last, "flat_param_", 11) == 0 || strcmp(last, "_flat_param") == 0 ||
           strcmp(last, "flat_param") == 0;
}

/* Whether each rank may have its own tensor, or its shard of a flat parameter. */
static bool is_for_model(const per_rank_rule *r, const rank_copies *c)
{
    if (r->match != NULL && description_is_local(r->match, c->name, strlen(c->name)))
        return true;
    if (!r->unflattens)
        return false;
    return (c->differ && c->in_optimizer && !c->in_rng) ||
           (c->is_1dim && (c->may_be_shard || c->beside_flat || is_unit_key(r->units, c->name) ||
                           is_flat_name(c->name)));
}

static rank_copies_use use_of(const void *ctx, const rank_copies *c)
{
    const per_rank_rule *r = ctx;
    const bool keep = r->policy == PER_RANK_KEEP, drop = r->policy == PER_RANK_DROP;
    const bool is_local = c->differ || c->on_some_ranks;
    const bool first = r->policy == PER_RANK_FIRST;

    if (!c->is_object && is_for_model(r, c))
        return RANK_COPIES_FOR_MODEL;
    if (c->beside_flat && !(keep && c->owns_records))
        return RANK_COPIES_OMIT_SHARD;
    if (drop && is_local)
        return RANK_COPIES_OMIT;
    if (keep && (is_local || c->of_stages || c->is_shard))
        return RANK_COPIES_EACH;
    if (c->is_shard && !(first && c->may_be_copy))
        return RANK_COPIES_FLAT;
    if (r->policy == PER_RANK_ERROR && is_local)
        return RANK_COPIES_REFUSE;
    if (!c->differ)
        return RANK_COPIES_JOIN;
    if (first)
        return RANK_COPIES_FIRST;
    return c->is_object || c->in_rng || c->is_single ? RANK_COPIES_OBJECTS : RANK_COPIES_JOIN;
}

rank_copies_rule per_rank_copies(const per_rank_rule *rule)
{
    return (rank_copies_rule){
        .ctx = rule, .compares = rule->policy != PER_RANK_AUTO, .use = use_of};
}
