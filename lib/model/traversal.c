#include <string.h>

#include "model/model_internal.h"

/* Result of one walk over the modules. Arrays have one item per module or parameter. */
typedef struct walk {
    const model *m;
    unsigned kind; /* MODULE_FSDP or MODULE_FULLY_SHARD */
    uint8_t *scopes;
    uint32_t *owner;     /* module of the unit that a module is in, MODEL_NONE */
    uint32_t *rank;      /* of a module in post-order */
    uint32_t *post;      /* the modules in post-order */
    uint32_t *begin;     /* of a unit's names in `members`; one more than modules */
    uint8_t *ignored;    /* of first names */
    uint32_t *by_tensor; /* unit that takes the parameter: of first names */
    uint32_t *by_slot;   /* the same without ties between modules: of names in original modules */
    uint32_t *primary;   /* name under which the last unit with the parameter took it */
    uint32_t *members;   /* names, unit after unit */
    uint64_t nbytes;
} walk;

static bool is_unit(const walk *w, uint32_t i)
{
    const model_module *module = model_module_at(w->m, i);
    return module->kinds & w->kind && !(w->scopes[i] & SCOPE_CLOSED);
}

void model_find_scopes(const model *m, uint8_t *scopes, uint8_t *ignored)
{
    for (uint32_t i = 0; i < model_module_count(m); i++) {
        const model_module *module = model_module_at(m, i);
        unsigned scope = module->parent == MODEL_NONE ? 0 : scopes[module->parent];
        /* FSDP collects the ignored modules before it enters an existing unit. */
        if (module->kinds & (MODULE_FSDP | MODULE_FULLY_SHARD))
            scope &= ~(unsigned)SCOPE_IGNORED;
        if (module->kinds & MODULE_REPLICATE)
            scope |= SCOPE_CLOSED;
        if (module->kinds & MODULE_IGNORED)
            scope |= SCOPE_IGNORED;
        if (module->kinds & MODULE_LOCAL)
            scope |= SCOPE_LOCAL;
        scopes[i] = (uint8_t)scope;
    }
    for (uint32_t i = 0; i < model_param_count(m); i++) {
        const model_param *p = model_param_at(m, i);
        if (p->ignored || scopes[p->module] & (SCOPE_CLOSED | SCOPE_IGNORED))
            ignored[model_param_first(m, i)] = 1;
    }
}

static fsdpck_status walk_init(walk *w, const model *m, unsigned kind, fsdpck_error *err)
{
    const uint64_t nmodules = m->modules.count;
    const uint64_t nparams = m->params.count;
    *w = (walk){.m = m, .kind = kind};
    w->nbytes = 4 * (4 * nmodules + 1 + 4 * nparams) + nmodules + nparams;
    uint32_t *block = budget_alloc(m->owner, w->nbytes, err);
    if (block == NULL)
        return FSDPCK_LIMIT;
    memset(block, 0xFF, 4 * (4 * nmodules + 1 + 4 * nparams)); /* MODEL_NONE */
    w->owner = block;
    w->rank = w->owner + nmodules;
    w->post = w->rank + nmodules;
    w->begin = w->post + nmodules;
    w->by_tensor = w->begin + nmodules + 1;
    w->by_slot = w->by_tensor + nparams;
    w->primary = w->by_slot + nparams;
    w->members = w->primary + nparams;
    w->scopes = (uint8_t *)(w->members + nparams);
    w->ignored = w->scopes + nmodules;
    return FSDPCK_OK;
}

static void walk_release(walk *w)
{
    budget_free(w->m->owner, w->owner, w->nbytes);
}

static void find_owners(walk *w)
{
    for (uint32_t i = 0; i < model_module_count(w->m); i++) {
        const model_module *module = model_module_at(w->m, i);
        if (w->scopes[i] & SCOPE_CLOSED)
            continue;
        if (is_unit(w, i)) {
            const uint32_t with = model_sharding_of(w->m, module)->with;
            w->owner[i] = with == MODEL_NONE ? i : with;
        } else if (module->parent != MODEL_NONE) {
            w->owner[i] = w->owner[module->parent];
        }
    }
}

/* A module ends when the next one is not below it. */
static void find_post_order(walk *w)
{
    const uint32_t count = model_module_count(w->m);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t at = i; at != MODEL_NONE; at = model_module_at(w->m, at)->parent) {
            if (model_module_at(w->m, at)->next != i + 1)
                break;
            w->post[rank] = at;
            w->rank[at] = rank++;
        }
    }
}

static void claim(const walk *w, uint32_t *taker, uint32_t owner)
{
    if (*taker == MODEL_NONE || w->rank[owner] < w->rank[*taker])
        *taker = owner;
}

static uint32_t slot_of(const walk *w, uint32_t param)
{
    const uint32_t slot = model_param_at(w->m, param)->same_slot;
    return slot == MODEL_NONE ? param : slot;
}

static fsdpck_status refuse_param(const model *m, const model_param *p, fsdpck_finding_id finding,
                                  const char *message, const char *expected, const char *found,
                                  fsdpck_error *err)
{
    return FAIL_AS(err, FSDPCK_BADINPUT, finding, ("%s", message),
                   (tensor, model_name(m, p->name, NULL)), (expected, "%s", expected),
                   (found, "%s", found),
                   (next, "describe the model again, or mark the parameter as ignored"));
}

/* `ignored`: a name of the parameter states its unit. */
#define STATES_UNIT 2

/* The order of the FSDP calls, where it is not that of the modules. */
static fsdpck_status find_stated_taker(const walk *w, uint32_t param, fsdpck_error *err)
{
    const model *m = w->m;
    const uint32_t first = model_param_first(m, param);
    const uint32_t owner = w->owner[model_param_at(m, param)->module];
    if (w->by_tensor[first] == MODEL_NONE || owner == MODEL_NONE || w->kind != MODULE_FSDP)
        return FSDPCK_OK;
    if (w->ignored[first] == STATES_UNIT && w->by_tensor[first] != owner)
        return refuse_param(m, model_param_at(m, param), FSDPCK_FINDING_MODEL_TIE,
                            "two units are stated to have a tied parameter",
                            "'flattened' at one name", "at names of two units", err);
    w->ignored[first] = STATES_UNIT;
    w->by_tensor[first] = owner;
    w->by_slot[slot_of(w, param)] = owner;
    return FSDPCK_OK;
}

static fsdpck_status find_takers(walk *w, fsdpck_error *err)
{
    for (uint32_t i = 0; i < model_param_count(w->m); i++) {
        const uint32_t first = model_param_first(w->m, i);
        const uint32_t owner = w->owner[model_param_at(w->m, i)->module];
        if (owner == MODEL_NONE || w->ignored[first])
            continue;
        claim(w, &w->by_tensor[first], owner);
        claim(w, &w->by_slot[slot_of(w, i)], owner);
    }
    for (uint32_t i = 0; i < model_param_count(w->m); i++)
        if (model_param_at(w->m, i)->flattened)
            RETURN_IF(find_stated_taker(w, i, err));
    return FSDPCK_OK;
}

/* The unit of a name, MODEL_NONE if no unit has the parameter. */
static uint32_t unit_of(const walk *w, uint32_t param)
{
    const uint32_t taker = w->by_tensor[model_param_first(w->m, param)];
    if (taker == MODEL_NONE)
        return MODEL_NONE;
    /* With original parameters FSDP marks them as flattened, so an outer unit skips a tied one.
     * Without them (and in FSDP2) the other module still has an unmarked parameter. */
    const bool knows = w->kind == MODULE_FSDP &&
                       model_sharding_of(w->m, model_module_at(w->m, taker))->use_orig_params;
    return knows ? taker : w->by_slot[slot_of(w, param)];
}

/* Counting sort of names by unit. FSDP1 flattens in pre-order, FSDP2 groups in post-order. */
static void find_members(walk *w)
{
    const model *m = w->m;
    const uint32_t nmodules = model_module_count(m);
    memset(w->begin, 0, (nmodules + (size_t)1) * sizeof *w->begin);
    for (uint32_t i = 0; i < model_param_count(m); i++) {
        const uint32_t taker = unit_of(w, i);
        if (taker != MODEL_NONE)
            w->begin[taker]++;
    }
    uint32_t sum = 0;
    for (uint32_t i = 0; i <= nmodules; i++) {
        sum += w->begin[i];
        w->begin[i] = sum; /* the end; filling from the back makes it the begin */
    }
    for (uint32_t k = nmodules; k-- > 0;) {
        const uint32_t index = w->kind == MODULE_FSDP ? k : w->post[k];
        const model_module *module = model_module_at(m, index);
        for (uint32_t i = module->first_param + module->nparams; i-- > module->first_param;) {
            const uint32_t taker = unit_of(w, i);
            if (taker != MODEL_NONE)
                w->members[--w->begin[taker]] = i;
        }
    }
}

static fsdpck_status walk_modules(walk *w, const model *m, unsigned kind, fsdpck_error *err)
{
    RETURN_IF(walk_init(w, m, kind, err));
    model_find_scopes(m, w->scopes, w->ignored);
    find_owners(w);
    find_post_order(w);
    const fsdpck_status st = find_takers(w, err);
    if (st == FSDPCK_OK)
        find_members(w);
    else
        walk_release(w);
    return st;
}

/* The name under which this unit takes the parameter. */
static uint32_t primary_in(const walk *w, uint32_t param, uint32_t taker)
{
    const uint32_t primary = w->primary[model_param_first(w->m, param)];
    return primary != MODEL_NONE && unit_of(w, primary) == taker ? primary : MODEL_NONE;
}

/* Whether this is the first name below the unit's module, which then applies. */
static bool becomes_primary(walk *w, uint32_t param, uint32_t taker)
{
    const uint32_t module = model_param_at(w->m, param)->module;
    const bool below = w->kind == MODULE_FULLY_SHARD ||
                       (module >= taker && module < model_module_at(w->m, taker)->next);
    if (!below || primary_in(w, param, taker) != MODEL_NONE)
        return false;
    w->primary[model_param_first(w->m, param)] = param;
    return true;
}

/* torch: _validate_tensors_to_flatten and _verify_managed_params. */
static fsdpck_status check_flattens(const model *m, const model_param *first, const model_param *p,
                                    bool use_orig_params, fsdpck_error *err)
{
    const dtype_info *d = dtype_get(p->dtype);
    if (d->kind != DTYPE_IS_FLOAT)
        return refuse_param(m, p, FSDPCK_FINDING_MODEL_DTYPE, "FSDP cannot flatten the parameter",
                            "a floating-point dtype", d->name, err);
    if (p->dtype != first->dtype)
        return refuse_param(m, p, FSDPCK_FINDING_MODEL_DTYPE,
                            "parameters of one unit differ in dtype", dtype_get(first->dtype)->name,
                            d->name, err);
    if (p->ndim == 0)
        return refuse_param(m, p, FSDPCK_FINDING_MODEL_SHAPE, "FSDP cannot flatten the parameter",
                            "at least one dim", "a 0-dim tensor", err);
    if (!use_orig_params && p->requires_grad != first->requires_grad)
        return refuse_param(
            m, p, FSDPCK_FINDING_MODEL_SETTINGS,
            "parameters of one unit differ in requires_grad, without use_orig_params",
            first->requires_grad ? "true" : "false", p->requires_grad ? "true" : "false", err);
    return FSDPCK_OK;
}

static bool older_than(const model *m, uint32_t major, uint32_t minor)
{
    return m->torch.major < major || (m->torch.major == major && m->torch.minor < minor);
}

bool sharding_is_hybrid(const model_sharding *s)
{
    return s->strategy == STRATEGY_HYBRID_SHARD || s->strategy == STRATEGY_HYBRID_SHARD_ZERO2;
}

uint32_t model_main_group(const model *m)
{
    uint32_t most = 0;
    uint32_t closed = 0; /* modules below it are skipped, including local and replicated ones */
    for (uint32_t i = 0; i < model_module_count(m); i++) {
        const model_module *module = model_module_at(m, i);
        if (module->kinds & (MODULE_LOCAL | MODULE_REPLICATE) && module->next > closed)
            closed = module->next;
        if (i < closed || !(module->kinds & (MODULE_FSDP | MODULE_FULLY_SHARD)))
            continue;
        const uint32_t own = model_sharding_of(m, module)->world_size;
        if (own == 0)
            return m->world_size;
        most = own > most ? own : most;
    }
    return most;
}

static fsdpck_status refuse_ranks(const model *m, const model_module *module, bool hybrid,
                                  fsdpck_error *err)
{
    size_t n;
    const char *path = model_name(m, module->name, &n);
    if (hybrid) {
        FAIL_WITH(err, BADINPUT, MODEL_WORLD,
                  ("hybrid sharding of %s%s%s does not state the number of ranks that a parameter "
                   "is sharded over",
                   n == 0 ? "the root module" : "module '", path, n == 0 ? "" : "'"),
                  (expected, "'world_size' of the sharding group in the module's 'fsdp'"),
                  (found, "no such key"),
                  (next, "add it; fsdpck layout also takes --mesh dp_replicate=R,dp_shard=S"));
    } else {
        FAIL_WITH(err, BADINPUT, MODEL_WORLD, ("number of ranks that share a unit is unknown"),
                  (expected, "'world_size' in the description"), (found, "no such key"),
                  (next, "add it"));
    }
    error_tensor(err, path);
    return FSDPCK_BADINPUT;
}

/* Number of ranks that share a unit. */
static fsdpck_status count_ranks(const walk *w, uint32_t unit_module, const model_ranks *asked,
                                 uint32_t *ranks, fsdpck_error *err)
{
    const model *m = w->m;
    const model_module *module = model_module_at(m, unit_module);
    const model_sharding *s = model_sharding_of(m, module);
    const bool hybrid = sharding_is_hybrid(s);
    *ranks = asked->world_size > 0 ? asked->world_size : m->world_size;
    if (w->scopes[unit_module] & SCOPE_LOCAL)
        *ranks = 1;
    else if (asked->group > 0 &&
             (hybrid || s->world_size == 0 || s->world_size == asked->main_group))
        *ranks = asked->group;
    else if (s->world_size > 0 && s->world_size != m->world_size)
        *ranks = s->world_size;
    else if (hybrid && s->world_size == 0)
        *ranks = 0;
    if (*ranks == 0)
        *ranks = asked->guess;
    return *ranks > 0 ? FSDPCK_OK : refuse_ranks(m, module, hybrid, err);
}

/* Fills the properties of a unit that do not depend on its parameters. */
static fsdpck_status make_proto(const walk *w, uint32_t unit_module, const model_ranks *asked,
                                const model_param *first, unit *proto, fsdpck_error *err)
{
    const model *m = w->m;
    const model_sharding *s = model_sharding_of(m, model_module_at(m, unit_module));
    uint32_t ranks;
    RETURN_IF(count_ranks(w, unit_module, asked, &ranks, err));
    const uint8_t compute = s->param_dtype != DTYPE_NONE ? s->param_dtype : first->dtype;
    *proto = (unit){.dtype = first->dtype,
                    .compute = compute,
                    .strategy = s->strategy,
                    .use_orig_params = s->use_orig_params,
                    .unsharded = s->strategy == STRATEGY_NO_SHARD || ranks == 1,
                    .row_major = older_than(m, 2, 6),
                    .world_size = ranks};
    if (s->use_orig_params && !older_than(m, 2, 1))
        proto->alignment = unit_alignment(compute);
    return FSDPCK_OK;
}

static fsdpck_status add_shared(const walk *w, uint32_t param, uint32_t primary, unit_list *units,
                                fsdpck_error *err)
{
    size_t n, same_n;
    const char *fqn = model_name(w->m, model_param_at(w->m, param)->name, &n);
    const char *same_as = model_name(w->m, model_param_at(w->m, primary)->name, &same_n);
    return unit_list_add_shared(units, fqn, n, same_as, same_n, err);
}

static fsdpck_status add_unit(walk *w, uint32_t index, const model_ranks *ranks, unit_list *units,
                              fsdpck_error *err)
{
    const model *m = w->m;
    const uint32_t begin = w->begin[index];
    const uint32_t end = w->begin[index + 1];
    const model_param *first = NULL;
    unit proto = {0};
    size_t n;
    for (uint32_t i = begin; i < end; i++) {
        if (!becomes_primary(w, w->members[i], index))
            continue;
        const model_param *p = model_param_at(m, w->members[i]);
        if (first == NULL) {
            first = p;
            RETURN_IF(make_proto(w, index, ranks, p, &proto, err));
            const char *flat_name = older_than(m, 2, 0) ? "flat_param" : "_flat_param";
            const char *prefix = model_state_path(m, model_module_at(m, index), &n);
            RETURN_IF(unit_list_add(units, &proto, prefix, n, flat_name, strlen(flat_name), err));
        }
        RETURN_IF(check_flattens(m, first, p, proto.use_orig_params, err));
        const char *fqn = model_name(m, p->name, &n);
        RETURN_IF(unit_list_add_param(units, fqn, n, p->ndim, model_shape(m, p->shape_at),
                                      model_strides(m, p), err));
    }
    if (first == NULL)
        return FSDPCK_OK;
    for (uint32_t i = begin; i < end; i++) {
        const uint32_t primary = primary_in(w, w->members[i], index);
        if (primary != w->members[i])
            RETURN_IF(add_shared(w, w->members[i], primary, units, err));
    }
    return unit_list_close(units, err);
}

fsdpck_status model_find_units(const model *m, const model_ranks *ranks, unit_list *units,
                               fsdpck_error *err)
{
    if (m->lists_units)
        return unit_list_scale(&m->units, ranks->group > 0 ? ranks->group : ranks->world_size,
                               units, err);
    walk w;
    RETURN_IF(walk_modules(&w, m, MODULE_FSDP, err));
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; i < model_module_count(m) && st == FSDPCK_OK; i++) {
        if (w.begin[i] < w.begin[i + 1])
            st = add_unit(&w, i, ranks, units, err);
    }
    walk_release(&w);
    return st == FSDPCK_OK ? unit_list_seal(units, err) : st;
}

void sharded_list_init(sharded_list *l, budget *owner)
{
    l->owner = owner;
    l->units = VEC_OF(sharded_unit, owner);
    l->params = VEC_OF(uint32_t, owner);
}

void sharded_list_release(sharded_list *l)
{
    VEC_RELEASE_ALL(&l->units, &l->params);
}

static fsdpck_status add_sharded(walk *w, uint32_t index, sharded_list *l, fsdpck_error *err)
{
    sharded_unit *u = vec_push(&l->units, err);
    if (u == NULL)
        return FSDPCK_LIMIT;
    const model_sharding *s = model_sharding_of(w->m, model_module_at(w->m, index));
    u->module = index;
    u->world_size = w->scopes[index] & SCOPE_LOCAL ? 1 : s->world_size;
    u->first_param = (uint32_t)l->params.count;
    for (uint32_t i = w->begin[index]; i < w->begin[index + 1]; i++) {
        if (!becomes_primary(w, w->members[i], index))
            continue;
        RETURN_IF(vec_add(&l->params, &(uint32_t){w->members[i]}, err));
        u->nparams++;
    }
    return FSDPCK_OK;
}

fsdpck_status model_find_fully_sharded(const model *m, sharded_list *l, fsdpck_error *err)
{
    walk w;
    RETURN_IF(walk_modules(&w, m, MODULE_FULLY_SHARD, err));
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; i < model_module_count(m) && st == FSDPCK_OK; i++) {
        if (w.begin[i] < w.begin[i + 1])
            st = add_sharded(&w, i, l, err);
    }
    walk_release(&w);
    return st;
}

static bool has_kind(const model *m, unsigned kind)
{
    for (uint32_t i = 0; i < model_module_count(m); i++)
        if (model_module_at(m, i)->kinds & kind)
            return true;
    return false;
}

static fsdpck_status refuse_both(const model *m, uint32_t param, uint32_t flat, uint32_t sharded,
                                 fsdpck_error *err)
{
    const fsdpck_status st = refuse_param(m, model_param_at(m, param), FSDPCK_FINDING_MODEL_WRAP,
                                          "FSDP and fully_shard would both shard the parameter",
                                          "either FSDP or fully_shard", "", err);
    error_found(err, "FSDP of module '%s', fully_shard of '%s'",
                model_name(m, model_module_at(m, flat)->name, NULL),
                model_name(m, model_module_at(m, sharded)->name, NULL));
    return st;
}

fsdpck_status model_check_kinds(const model *m, fsdpck_error *err)
{
    walk flat, sharded;
    if (!has_kind(m, MODULE_FSDP) || !has_kind(m, MODULE_FULLY_SHARD))
        return FSDPCK_OK;
    RETURN_IF(walk_modules(&flat, m, MODULE_FSDP, err));
    fsdpck_status st = walk_modules(&sharded, m, MODULE_FULLY_SHARD, err);
    if (st == FSDPCK_OK) {
        for (uint32_t i = 0; i < model_param_count(m) && st == FSDPCK_OK; i++) {
            const uint32_t a = unit_of(&flat, i), b = unit_of(&sharded, i);
            if (a != MODEL_NONE && b != MODEL_NONE)
                st = refuse_both(m, i, a, b, err);
        }
        walk_release(&sharded);
    }
    walk_release(&flat);
    return st;
}
