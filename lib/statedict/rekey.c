#include "statedict/rekey.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "statedict/rekey_internal.h"

/* Lookup is linear. */
#define OPTIMIZERS_MAX 1024u

/* --- paths --- */

static bool begins(const char *text, size_t nbytes, const char *with)
{
    const size_t n = strlen(with);
    return nbytes > n && memcmp(text, with, n) == 0;
}

/* Whether the name matches its path; *prefix becomes the bytes before element `depth`. */
static bool prefix_of(const catalogue *c, uint32_t name, value path, size_t depth, size_t *prefix)
{
    const char *text = catalogue_name(c, name);
    const size_t nbytes = catalogue_name_nbytes(c, name);
    size_t at = 0;
    for (size_t i = 0; i < depth; i++) {
        char digits[24];
        size_t n;
        const char *element = rekey_element(c, value_item(&c->pool, path, i), digits, &n);
        if (n > nbytes - at || memcmp(text + at, element, n) != 0)
            return false;
        at += n;
        if (at == nbytes || text[at++] != '.')
            return false;
    }
    *prefix = at;
    return true;
}

/* --- finding the optimizers --- */

/* *found is NULL if none exists and none is to be created. */
static fsdpck_status find_optimizer(rekey *r, uint32_t name, value path, size_t depth, bool flat,
                                    bool make, rekey_optimizer **found, fsdpck_error *err)
{
    catalogue *c = r->cat;
    size_t prefix;
    *found = NULL;
    if (!prefix_of(c, name, path, depth, &prefix))
        return FSDPCK_OK;
    uint32_t id = strtab_find(&r->texts, catalogue_name(c, name), prefix);
    for (size_t i = 0; id != STRTAB_NONE && i < r->optimizers.count; i++) {
        rekey_optimizer *o = REKEY_OPTIMIZER(r, i);
        if (o->prefix == id && o->depth == depth && o->flat == flat) {
            *found = o;
            return FSDPCK_OK;
        }
    }
    if (!make)
        return FSDPCK_OK;
    if (r->optimizers.count == OPTIMIZERS_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "more than %u optimizers", OPTIMIZERS_MAX);
    RETURN_IF(strtab_intern(&r->texts, catalogue_name(c, name), prefix, &id, err));
    rekey_optimizer *o = vec_push(&r->optimizers, err);
    if (o == NULL)
        return FSDPCK_LIMIT;
    budget *owner = c->owner;
    *o = (rekey_optimizer){.prefix = id,
                           .depth = (uint32_t)depth,
                           .flat = flat,
                           .sample = path,
                           .positions = VEC_OF(rekey_position, owner),
                           .members = VEC_OF(uint32_t, owner),
                           .groups = VEC_OF(rekey_group, owner),
                           .states = VEC_OF(uint32_t, owner)};
    strtab_init(&o->labels, owner);
    *found = o;
    return FSDPCK_OK;
}

/* The element that marks a part of a group; false if none does. */
static bool find_groups_element(const catalogue *c, value path, bool is_object, size_t *depth,
                                bool *flat)
{
    const size_t count = value_count(&c->pool, path);
    for (size_t i = 0; i < count; i++) {
        size_t nbytes = 0;
        const value v = value_item(&c->pool, path, i);
        const char *text = value_text(&c->pool, v, &nbytes);
        if (value_kind_of(v) != VALUE_STR)
            continue;
        *depth = i;
        *flat = i + 1 == count && begins(text, nbytes, "param_groups.");
        if (*flat || (rekey_is(c, path, i, "param_groups") &&
                      (i + 1 == count ? is_object
                                      : i + 2 < count && value_kind_of(value_item(
                                                             &c->pool, path, i + 1)) == VALUE_INT)))
            return true;
    }
    return false;
}

static fsdpck_status add_entry(rekey *r, const rekey_entry *e, fsdpck_error *err)
{
    RETURN_IF(vec_add(&r->entries, e, err));
    if (!e->is_object)
        r->mine[e->index] = 1;
    return FSDPCK_OK;
}

/* The part after the last dot, and the list index of a group. */
static fsdpck_status see_group(rekey *r, uint32_t index, bool is_object, uint32_t name, value path,
                               fsdpck_error *err)
{
    catalogue *c = r->cat;
    const size_t count = value_count(&c->pool, path);
    rekey_entry e = {.index = index, .at = REKEY_NONE, .kind = REKEY_HYPER, .is_object = is_object};
    size_t depth, nbytes;
    bool flat;
    uint64_t at;

    if (!find_groups_element(c, path, is_object, &depth, &flat))
        return FSDPCK_OK;
    rekey_optimizer *o;
    RETURN_IF(find_optimizer(r, name, path, depth, flat, true, &o, err));
    if (o == NULL)
        return FSDPCK_OK;
    e.owner = (uint32_t)(o - REKEY_OPTIMIZER(r, 0));
    const char *text = value_text(&c->pool, value_item(&c->pool, path, count - 1), &nbytes);
    if (flat) {
        size_t dot = nbytes;
        while (dot > 0 && text[dot - 1] != '.')
            dot--;
        if (dot <= strlen("param_groups.") + 1)
            return FSDPCK_OK;
        RETURN_IF(strtab_intern(&r->texts, text + dot, nbytes - dot, &e.key, err));
        return add_entry(r, &e, err);
    }
    if (depth + 1 == count) {
        e.kind = REKEY_GROUPS_ALL;
        return add_entry(r, &e, err);
    }
    if (!value_as_u64(&c->pool, value_item(&c->pool, path, depth + 1), &at) ||
        at >= REKEY_POSITIONS_MAX)
        return FSDPCK_OK;
    e.at = (uint32_t)at;
    if (depth + 3 == count && text != NULL) {
        if (is_object && rekey_is(c, path, count - 1, "params"))
            e.kind = REKEY_PARAMS;
        if (is_object && rekey_is(c, path, count - 1, "param_names"))
            e.kind = REKEY_NAMES;
        RETURN_IF(strtab_intern(&r->texts, text, nbytes, &e.key, err));
    } else {
        e.key = REKEY_NONE; /* below a hyperparameter */
    }
    return add_entry(r, &e, err);
}

/* --- state --- */

/* The longest parameter name that the text begins with, followed by a dot. */
static uint32_t longest_label(const rekey_optimizer *o, const char *text, size_t nbytes,
                              uint32_t *label_nbytes)
{
    while (nbytes > 0) {
        while (nbytes > 0 && text[nbytes - 1] != '.')
            nbytes--;
        if (nbytes < 2)
            break;
        const uint32_t found = strtab_find(&o->labels, text, --nbytes);
        *label_nbytes = (uint32_t)nbytes;
        if (found != STRTAB_NONE)
            return found;
    }
    *label_nbytes = 0;
    return REKEY_NONE;
}

/* Known to hold nothing: None, or an empty dict. */
static bool is_nothing(catalogue *c, uint32_t object)
{
    const cat_object *o = catalogue_object(c, object);
    value dict;
    return o->loaded && (value_is_none(o->content) || (value_as_dict(&c->pool, o->content, &dict) &&
                                                       value_count(&c->pool, dict) == 0));
}

/* Objects of its state distinguish parameters; an object with the whole state distinguishes all of
 * them. */
static void add_object_of_rank(rekey *r, rekey_optimizer *o, const rekey_entry *e)
{
    if (!e->is_object || is_nothing(r->cat, e->index))
        return;
    if (e->kind == REKEY_STATE && e->at != REKEY_NONE)
        REKEY_POSITION(o, e->at)->has_objects = true;
    for (uint32_t i = 0; e->kind == REKEY_STATE_ALL && i < o->positions.count; i++)
        REKEY_POSITION(o, i)->has_objects = true;
}

static fsdpck_status see_state(rekey *r, uint32_t index, bool is_object, uint32_t name, value path,
                               fsdpck_error *err)
{
    catalogue *c = r->cat;
    const size_t count = value_count(&c->pool, path);
    for (size_t i = 0; i < count; i++) {
        const value v = value_item(&c->pool, path, i);
        rekey_entry e = {.index = index, .at = REKEY_NONE, .is_object = is_object};
        size_t nbytes = 0;
        const char *text = value_text(&c->pool, v, &nbytes);
        if (value_kind_of(v) != VALUE_STR)
            continue;
        const bool flat = i + 1 == count && begins(text, nbytes, "state.");
        if (!flat && (!rekey_is(c, path, i, "state") || (i + 1 == count && !is_object)))
            continue;
        rekey_optimizer *o;
        RETURN_IF(find_optimizer(r, name, path, i, flat, false, &o, err));
        if (o == NULL)
            continue;
        e.owner = (uint32_t)(o - REKEY_OPTIMIZER(r, 0));
        e.kind = !flat && i + 1 == count ? REKEY_STATE_ALL : REKEY_STATE;
        if (flat) {
            e.at = longest_label(o, text + 6, nbytes - 6, &e.key);
        } else if (e.kind == REKEY_STATE) {
            char digits[24];
            size_t n;
            text = rekey_element(c, value_item(&c->pool, path, i + 1), digits, &n);
            e.at = strtab_find(&o->labels, text, n);
            e.key = (uint32_t)n;
        }
        o->unknown += e.kind == REKEY_STATE && e.at == REKEY_NONE;
        add_object_of_rank(r, o, &e);
        return add_entry(r, &e, err);
    }
    return FSDPCK_OK;
}

typedef fsdpck_status (*see_fn)(rekey *r, uint32_t index, bool is_object, uint32_t name, value path,
                                fsdpck_error *err);

static fsdpck_status see_all(rekey *r, see_fn see, fsdpck_error *err)
{
    for (uint32_t i = 0; i < catalogue_object_count(r->cat); i++) {
        const cat_object *o = catalogue_object(r->cat, i);
        RETURN_IF(see(r, i, true, o->name, o->path, err));
    }
    for (uint32_t i = 0; i < r->mine_count; i++) {
        const cat_tensor *t = catalogue_tensor(r->cat, i);
        if ((t->flags & (CAT_TENSOR_IN_OBJECT | CAT_TENSOR_STORAGE)) == 0)
            RETURN_IF(see(r, i, false, t->name, t->path, err));
    }
    return FSDPCK_OK;
}

/* Tensors of each parameter's state that can reveal its shape, in the order of the catalogue. */
static fsdpck_status list_states(rekey *r, uint32_t owner, fsdpck_error *err)
{
    rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    uint32_t total = 0;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < r->entries.count; i++) {
            const rekey_entry *e = REKEY_ENTRY(r, i);
            if (e->owner != owner || e->kind != REKEY_STATE || e->is_object || e->at == REKEY_NONE)
                continue;
            rekey_position *p = REKEY_POSITION(o, e->at);
            if (pass == 1)
                *VEC_AT(&o->states, uint32_t, p->first_state + p->nstates) = e->index;
            p->nstates++;
            total++;
        }
        if (pass == 1)
            break;
        if (vec_push_n(&o->states, total, err) == NULL && total > 0)
            return FSDPCK_LIMIT;
        uint32_t first = 0;
        for (size_t i = 0; i < o->positions.count; i++) {
            rekey_position *p = REKEY_POSITION(o, i);
            p->first_state = first;
            first += p->nstates;
            p->nstates = 0;
        }
    }
    return FSDPCK_OK;
}

/* --- main functions --- */

bool rekey_needs_object(const catalogue *c, uint32_t object, optim_keys to)
{
    const cat_object *o = catalogue_object(c, object);
    const size_t count = value_count(&c->pool, o->path);
    size_t depth;
    bool flat;

    if (count >= 1 && rekey_is(c, o->path, count - 1, "state"))
        return true;
    if (count >= 2 && rekey_is(c, o->path, count - 2, "state"))
        return to == OPTIM_KEYS_FLAT;
    if (!find_groups_element(c, o->path, true, &depth, &flat))
        return false;
    return flat ? to != OPTIM_KEYS_FLAT
                : to == OPTIM_KEYS_FLAT || depth + 1 == count ||
                      rekey_is(c, o->path, count - 1, "params") ||
                      rekey_is(c, o->path, count - 1, "param_names");
}

static fsdpck_status know_names(rekey *r, fsdpck_error *err)
{
    for (uint32_t i = 0; i < r->order->count; i++) {
        const rekey_param *p = &r->order->params[i];
        uint32_t id;
        if (p->nameless || (p->tensor != CAT_NONE && r->mine[p->tensor]))
            continue;
        r->has_model = r->has_model || !p->outside;
        RETURN_IF(strtab_intern(&r->known, p->fqn, p->fqn_nbytes, &id, err));
        if (id < r->known_at.count)
            continue;
        RETURN_IF(vec_add(&r->known_at, &(uint32_t){p->tied ? p->tied_to : i}, err));
        RETURN_IF(vec_add(&r->known_own, &i, err));
    }
    return FSDPCK_OK;
}

/* Numbers that match no parameters may be any of them. */
static void match_tentative(rekey *r, uint32_t owner)
{
    if (rekey_match(r, owner, true, NULL) != FSDPCK_OK)
        rekey_mark_unknown(REKEY_OPTIMIZER(r, owner));
}

/* Maps its labels to parameters. */
static fsdpck_status match(rekey *r, uint32_t owner, fsdpck_error *err)
{
    rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);

    if (o->unknown > 0)
        log_warn(r->log, FSDPCK_FINDING_OPTIM_STRAY, "",
                 "state of parameters that no param_group lists keeps its keys: %" PRIu32
                 " tensor%s or object%s",
                 o->unknown, text_plural(o->unknown), text_plural(o->unknown));
    o->same = o->positions.count == 0 || (o->form == r->to && r->to != OPTIM_KEYS_ID);
    if (o->same)
        return FSDPCK_OK;
    RETURN_IF(list_states(r, owner, err));
    if (o->form == OPTIM_KEYS_ID && r->to != OPTIM_KEYS_ID) {
        RETURN_IF(rekey_match(r, owner, false, err));
        if (o->inferred && !r->order->assumed)
            rekey_warn_order(r, o);
    } else if (o->form == OPTIM_KEYS_ID) {
        match_tentative(r, owner); /* only for cat_tensor.param */
    } else {
        RETURN_IF(rekey_names_clean(r, o, err));
    }
    return o->form == OPTIM_KEYS_NAME && o->unknown > 0 ? rekey_check_strays(r, owner, err)
                                                        : FSDPCK_OK;
}

static fsdpck_status prepare(rekey *r, uint32_t owner, fsdpck_error *err)
{
    rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    if (o->same)
        return FSDPCK_OK;
    if (o->form == OPTIM_KEYS_FLAT)
        RETURN_IF(rekey_groups_make(r, owner, err));
    RETURN_IF(rekey_number(r, o, err));
    RETURN_IF(rekey_names_write(r, o, err));
    return rekey_lists_make(r, o, err);
}

static fsdpck_status run(rekey *r, fsdpck_error *err)
{
    RETURN_IF(see_all(r, see_group, err));
    for (uint32_t i = 0; i < r->optimizers.count; i++)
        RETURN_IF(rekey_groups_read(r, i, err));
    if (r->to != OPTIM_KEYS_FLAT)
        RETURN_IF(rekey_check_flat(r, err));
    RETURN_IF(see_all(r, see_state, err));
    RETURN_IF(know_names(r, err));
    for (uint32_t i = 0; i < r->optimizers.count; i++)
        RETURN_IF(match(r, i, err));
    RETURN_IF(rekey_check_conflicts(r, r->to == OPTIM_KEYS_ID, err));
    for (uint32_t i = 0; i < r->optimizers.count; i++)
        RETURN_IF(prepare(r, i, err));
    if (!value_is_none(r->cat->root))
        RETURN_IF(rekey_root(r, err));
    RETURN_IF(rekey_tensors(r, err));
    RETURN_IF(rekey_objects(r, err));
    return catalogue_reindex(r->cat, err);
}

/* Errors of an optimizer do not matter to the caller here. */
static fsdpck_status learn(rekey *r, fsdpck_error *err)
{
    RETURN_IF(see_all(r, see_group, err));
    for (uint32_t i = 0; i < r->optimizers.count; i++)
        REKEY_OPTIMIZER(r, i)->same = rekey_groups_read(r, i, NULL) != FSDPCK_OK;
    RETURN_IF(see_all(r, see_state, err));
    RETURN_IF(know_names(r, err));
    for (uint32_t i = 0; i < r->optimizers.count; i++) {
        rekey_optimizer *o = REKEY_OPTIMIZER(r, i);
        o->same = o->same || o->form != OPTIM_KEYS_ID || list_states(r, i, NULL) != FSDPCK_OK;
        if (!o->same)
            match_tentative(r, i);
    }
    RETURN_IF(rekey_check_conflicts(r, true, err));
    RETURN_IF(rekey_text_numbers(r, err));
    for (size_t i = 0; i < r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(r, i);
        const rekey_optimizer *o = REKEY_OPTIMIZER(r, e->owner);
        if (o->same || e->kind != REKEY_STATE || e->is_object || e->at == REKEY_NONE)
            continue;
        RETURN_IF(rekey_note_param(r, REKEY_POSITION(o, e->at), e->index, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status run_with(catalogue *c, const rekey_order *order, optim_keys to,
                              const logger *log, uint32_t *count, fsdpck_error *err)
{
    rekey r = {.cat = c,
               .order = order,
               .to = to,
               .log = log,
               .known_at = VEC_OF(uint32_t, c->owner),
               .known_own = VEC_OF(uint32_t, c->owner),
               .optimizers = VEC_OF(rekey_optimizer, c->owner),
               .entries = VEC_OF(rekey_entry, c->owner),
               .mine_count = catalogue_tensor_count(c)};
    strtab_init(&r.texts, c->owner);
    strtab_init(&r.known, c->owner);
    r.mine = budget_alloc(c->owner, r.mine_count, err);
    const fsdpck_status st = r.mine == NULL                 ? FSDPCK_LIMIT
                             : to == OPTIM_KEYS_AS_THEY_ARE ? learn(&r, err)
                                                            : run(&r, err);
    *count = (uint32_t)r.optimizers.count;
    for (size_t i = 0; i < r.optimizers.count; i++) {
        rekey_optimizer *o = REKEY_OPTIMIZER(&r, i);
        strtab_release(&o->labels);
        VEC_RELEASE_ALL(&o->positions, &o->members, &o->groups, &o->states);
    }
    budget_free(c->owner, r.mine, r.mine_count);
    VEC_RELEASE_ALL(&r.optimizers, &r.entries, &r.known_at, &r.known_own);
    strtab_release(&r.texts);
    strtab_release(&r.known);
    return st;
}

fsdpck_status rekey_run(catalogue *c, const rekey_order *order, optim_keys to, const logger *log,
                        uint32_t *count, fsdpck_error *err)
{
    *count = 0;
    return to == OPTIM_KEYS_AS_THEY_ARE ? FSDPCK_OK : run_with(c, order, to, log, count, err);
}

fsdpck_status rekey_infer_params(catalogue *c, const rekey_order *order, const logger *log,
                                 fsdpck_error *err)
{
    uint32_t count;
    return run_with(c, order, OPTIM_KEYS_AS_THEY_ARE, log, &count, err);
}
