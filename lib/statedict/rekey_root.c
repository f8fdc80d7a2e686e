/* The nested root of a checkpoint: the same dicts with other keys. */
#include <string.h>

#include "base/text.h"
#include "statedict/rekey_internal.h"

/* A label as a key: a name as str, a number as int. */
static fsdpck_status new_key(rekey *r, const rekey_optimizer *o, uint32_t position, value *key,
                             fsdpck_error *err)
{
    value_pool *pool = &r->cat->pool;
    const rekey_position *p = REKEY_POSITION(o, position);
    if (r->to == OPTIM_KEYS_ID)
        return value_new_int(pool, p->number, key, err);
    return value_new_str(pool, strtab_text(&r->texts, p->written),
                         strtab_nbytes(&r->texts, p->written), key, err);
}

fsdpck_status rekey_dict(rekey *r, const rekey_optimizer *o, value dict, value *made,
                         fsdpck_error *err)
{
    value_pool *pool = &r->cat->pool;
    value from, to;
    if (!value_as_dict(pool, dict, &from))
        return rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                          "state is not a dict");
    RETURN_IF(value_new_dict(pool, &to, err));
    for (size_t i = 0; i < value_count(pool, from); i++) {
        char digits[24];
        size_t nbytes;
        value key = value_key(pool, from, i);
        const char *text = rekey_element(r->cat, key, digits, &nbytes);
        const uint32_t position = strtab_find(&o->labels, text, nbytes);
        if (position != STRTAB_NONE)
            RETURN_IF(new_key(r, o, position, &key, err));
        RETURN_IF(value_dict_put(pool, to, key, value_item(pool, from, i), err));
    }
    value_call *call = value_call_of(pool, dict);
    if (call != NULL && call->dict_items == from)
        call->dict_items = to;
    *made = call != NULL && call->dict_items == to ? dict : to;
    return FSDPCK_OK;
}

static bool find_key(const value_pool *pool, value dict, const char *key, size_t *at)
{
    for (*at = 0; *at < value_count(pool, dict); ++*at)
        if (value_is_str(pool, value_key(pool, dict, *at), key))
            return true;
    return false;
}

fsdpck_status rekey_group_list(rekey *r, const rekey_optimizer *o, value list, value *made,
                               fsdpck_error *err)
{
    value_pool *pool = &r->cat->pool;
    *made = list;
    for (size_t i = 0; i < o->groups.count; i++) {
        const rekey_group *g = REKEY_GROUP(o, i);
        value dict;
        size_t at;
        if (value_kind_of(list) != VALUE_LIST || g->index >= value_count(pool, list) ||
            !value_as_dict(pool, value_item(pool, list, g->index), &dict) ||
            !find_key(pool, dict, "params", &at))
            return rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                              "param_group %u has no list of parameters", (unsigned)g->index);
        value_set_item(pool, dict, at, g->new_params);
    }
    return FSDPCK_OK;
}

/* --- finding the optimizer in the root --- */

/* Its location: item `at` of `holder`; None for the root itself. */
typedef struct place_in_root {
    value holder, container;
    size_t at;
} place_in_root;

static bool step_into(rekey *r, value element, place_in_root *p)
{
    value_pool *pool = &r->cat->pool;
    const value_kind kind = value_kind_of(element);
    uint64_t index;
    if (kind == VALUE_INT) {
        if (value_kind_of(p->container) != VALUE_LIST || !value_as_u64(pool, element, &index) ||
            index >= value_count(pool, p->container))
            return false;
        *p = (place_in_root){p->container, value_item(pool, p->container, (size_t)index),
                             (size_t)index};
        return true;
    }
    value dict;
    size_t wanted_nbytes;
    const char *wanted = value_text(pool, element, &wanted_nbytes);
    if (wanted == NULL || !value_as_dict(pool, p->container, &dict))
        return false;
    for (size_t i = 0; i < value_count(pool, dict); i++) {
        char digits[24];
        size_t nbytes;
        const value key = value_key(pool, dict, i);
        const char *text = rekey_element(r->cat, key, digits, &nbytes);
        if ((value_kind_of(key) == VALUE_INT) == (kind == VALUE_BYTES) &&
            text_equal(text, nbytes, wanted, wanted_nbytes)) {
            *p = (place_in_root){dict, value_item(pool, dict, i), i};
            return true;
        }
    }
    return false;
}

/* --- between the flattened form and others: rebuilt --- */

static bool is_own_key(const rekey_optimizer *o, const value_pool *pool, value key)
{
    size_t nbytes = 0;
    const char *text = value_text(pool, key, &nbytes);
    if (value_kind_of(key) != VALUE_STR)
        return false;
    if (!o->flat)
        return value_is_str(pool, key, "state") || value_is_str(pool, key, "param_groups");
    return (nbytes > 6 && memcmp(text, "state.", 6) == 0) ||
           (nbytes > 13 && memcmp(text, "param_groups.", 13) == 0);
}

/* Dicts under construction: the state of each parameter, the hyperparameters of each group. */
typedef struct making {
    rekey *r;
    const rekey_optimizer *o;
    uint32_t owner;
    value dict, state, groups;
    value *states;      /* by position */
    uint32_t *group_of; /* by position: it is the first of this group, counted from 1 */
    text_buf key;
    uint64_t steps; /* of find_in_dict() */
} making;

static value leaf_of(const rekey *r, const rekey_entry *e)
{
    return e->is_object ? catalogue_object(r->cat, e->index)->content : value_of_tensor(e->index);
}

static fsdpck_status put_text(making *m, value dict, const char *text, size_t nbytes, value item,
                              fsdpck_error *err)
{
    value_pool *pool = &m->r->cat->pool;
    value key;
    RETURN_IF(value_new_str(pool, text, nbytes, &key, err));
    return value_dict_put(pool, dict, key, item, err);
}

static fsdpck_status contradiction(const making *m, fsdpck_error *err)
{
    const fsdpck_status st = rekey_fail(
        m->r, m->o, FSDPCK_BADINPUT, FSDPCK_FINDING_KEY_NEST, err,
        "flattened state has a value where '%.200s' requires a dict, or the reverse", m->key.text);
    error_next(err, "use --optim-keys flat, which keeps the keys");
    return st;
}

/* Texts of a pool are equal only if they are the same value. false: none, or too many steps. */
static bool find_in_dict(making *m, value dict, value key, value *item)
{
    const value_pool *pool = &m->r->cat->pool;
    for (size_t i = value_count(pool, dict); i > 0 && m->steps <= REKEY_STEPS_MAX; i--) {
        m->steps++;
        if (value_key(pool, dict, i - 1) != key)
            continue;
        *item = value_item(pool, dict, i - 1);
        return true;
    }
    return false;
}

/* Puts it into the dicts that the dots of m->key separate, as torch does. */
static fsdpck_status put_nested(making *m, value dict, value item, fsdpck_error *err)
{
    value_pool *pool = &m->r->cat->pool;
    size_t at = 0;
    for (;;) {
        const char *text = m->key.text + at;
        const char *dot = memchr(text, '.', m->key.nbytes - at);
        const size_t n = dot == NULL ? m->key.nbytes - at : (size_t)(dot - text);
        value key, next;
        RETURN_IF(value_new_str(pool, text, n, &key, err));
        const bool found = find_in_dict(m, dict, key, &next);
        if (m->steps > REKEY_STEPS_MAX)
            return FAIL(err, LIMIT, LIMIT_COUNT, "too many keys in flattened state");
        if (dot == NULL)
            return found ? contradiction(m, err) : value_dict_put(pool, dict, key, item, err);
        if (found && value_kind_of(next) != VALUE_DICT)
            return contradiction(m, err);
        if (!found) {
            RETURN_IF(value_new_dict(pool, &next, err));
            RETURN_IF(value_dict_put(pool, dict, key, next, err));
        }
        dict = next;
        at += n + 1;
    }
}

/* From the flattened form. */
static fsdpck_status nest_entry(making *m, const rekey_entry *e, fsdpck_error *err)
{
    rekey *r = m->r;
    value_pool *pool = &r->cat->pool;
    if (e->kind == REKEY_HYPER) {
        if (m->group_of[e->at] == 0)
            return FSDPCK_OK;
        const rekey_group *g = REKEY_GROUP(m->o, m->group_of[e->at] - 1);
        return put_text(m, value_item(pool, m->groups, g->index), strtab_text(&r->texts, e->key),
                        strtab_nbytes(&r->texts, e->key), leaf_of(r, e), err);
    }
    const value path = e->is_object ? catalogue_object(r->cat, e->index)->path
                                    : catalogue_tensor(r->cat, e->index)->path;
    size_t nbytes = 0;
    const char *text = value_text(pool, value_item(pool, path, m->o->depth), &nbytes);
    const size_t skip = strlen("state.") + e->key + 1;
    if (e->at == REKEY_NONE || nbytes <= skip)
        return FSDPCK_OK;
    if (value_is_none(m->states[e->at])) {
        value key;
        RETURN_IF(value_new_dict(pool, &m->states[e->at], err));
        RETURN_IF(new_key(r, m->o, e->at, &key, err));
        RETURN_IF(value_dict_put(pool, m->state, key, m->states[e->at], err));
    }
    m->key.nbytes = 0;
    text_append(&m->key, text + skip, nbytes - skip); /* the pool may move */
    text_append(&m->key, "", 0);
    RETURN_IF(text_check(&m->key, err));
    return put_nested(m, m->states[e->at], leaf_of(r, e), err);
}

static fsdpck_status nest_all(making *m, fsdpck_error *err)
{
    rekey *r = m->r;
    value_pool *pool = &r->cat->pool;
    RETURN_IF(value_new_dict(pool, &m->state, err));
    RETURN_IF(value_new_list(pool, &m->groups, err));
    for (uint32_t i = 0; i < m->o->groups.count; i++) {
        const rekey_group *g = REKEY_GROUP(m->o, i);
        value dict;
        RETURN_IF(value_new_dict(pool, &dict, err));
        RETURN_IF(value_append(pool, m->groups, dict, err));
        if (g->count > 0)
            m->group_of[*REKEY_MEMBER(m->o, g->first)] = i + 1;
    }
    for (size_t i = 0; i < r->entries.count; i++)
        if (REKEY_ENTRY(r, i)->owner == m->owner)
            RETURN_IF(nest_entry(m, REKEY_ENTRY(r, i), err));
    for (uint32_t i = 0; i < m->o->groups.count; i++)
        RETURN_IF(put_text(m, value_item(pool, m->groups, i), "params", 6,
                           REKEY_GROUP(m->o, i)->new_params, err));
    RETURN_IF(put_text(m, m->dict, "state", 5, m->state, err));
    return put_text(m, m->dict, "param_groups", 12, m->groups, err);
}

/* To the flattened form: each tensor and object of state, then groups. */
static fsdpck_status flatten_states(making *m, fsdpck_error *err)
{
    rekey *r = m->r;
    catalogue *c = r->cat;
    const size_t prefix = strtab_nbytes(&r->texts, m->o->prefix);
    for (size_t i = 0; i < r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(r, i);
        if (e->owner != m->owner || e->kind != REKEY_STATE || e->at == REKEY_NONE)
            continue;
        const uint32_t name = e->is_object ? catalogue_object(c, e->index)->name
                                           : catalogue_tensor(c, e->index)->name;
        const size_t skip = prefix + strlen("state.") + e->key;
        m->key.nbytes = 0;
        text_puts(&m->key, "state.");
        rekey_label(r, m->o, e->at, &m->key);
        if (skip <= catalogue_name_nbytes(c, name))
            text_append(&m->key, catalogue_name(c, name) + skip,
                        catalogue_name_nbytes(c, name) - skip);
        RETURN_IF(text_check(&m->key, err));
        RETURN_IF(put_text(m, m->dict, m->key.text, m->key.nbytes, leaf_of(r, e), err));
    }
    return FSDPCK_OK;
}

static fsdpck_status flatten_groups(making *m, value list, fsdpck_error *err)
{
    value_pool *pool = &m->r->cat->pool;
    for (size_t i = 0; i < m->o->groups.count; i++) {
        const rekey_group *g = REKEY_GROUP(m->o, i);
        value dict;
        if (value_kind_of(list) != VALUE_LIST || g->index >= value_count(pool, list) ||
            !value_as_dict(pool, value_item(pool, list, g->index), &dict))
            continue;
        for (uint32_t k = 0; k < g->count; k++) {
            for (size_t h = 0; h < value_count(pool, dict); h++) {
                const value key = value_key(pool, dict, h);
                size_t nbytes = 0;
                const char *text = value_text(pool, key, &nbytes);
                if (value_kind_of(key) != VALUE_STR || value_is_str(pool, key, "params"))
                    continue;
                m->key.nbytes = 0;
                text_puts(&m->key, "param_groups.");
                rekey_label(m->r, m->o, *REKEY_MEMBER(m->o, g->first + k), &m->key);
                text_append(&m->key, ".", 1);
                text_append(&m->key, text, nbytes);
                RETURN_IF(text_check(&m->key, err));
                RETURN_IF(put_text(m, m->dict, m->key.text, m->key.nbytes,
                                   value_item(pool, dict, h), err));
            }
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status make_anew(rekey *r, uint32_t owner, value old, value *made, fsdpck_error *err)
{
    value_pool *pool = &r->cat->pool;
    const rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    const size_t count = o->positions.count;
    making m = {.r = r, .o = o, .owner = owner};
    value list = VALUE_OF_NONE;
    (void)value_dict_find(pool, old, "param_groups", &list);
    m.states = budget_alloc(r->cat->owner, count * sizeof *m.states, err);
    m.group_of = budget_alloc(r->cat->owner, count * sizeof *m.group_of, err);
    fsdpck_status st =
        m.states == NULL || m.group_of == NULL ? FSDPCK_LIMIT : value_new_dict(pool, &m.dict, err);
    for (size_t i = 0; st == FSDPCK_OK && i < value_count(pool, old); i++)
        if (!is_own_key(o, pool, value_key(pool, old, i)))
            st = value_dict_put(pool, m.dict, value_key(pool, old, i), value_item(pool, old, i),
                                err);
    if (st == FSDPCK_OK)
        st = o->flat ? nest_all(&m, err) : flatten_states(&m, err);
    if (st == FSDPCK_OK && !o->flat)
        st = flatten_groups(&m, list, err);
    *made = m.dict;
    text_release(&m.key);
    budget_free(r->cat->owner, m.states, count * sizeof *m.states);
    budget_free(r->cat->owner, m.group_of, count * sizeof *m.group_of);
    return st;
}

static fsdpck_status rekey_in_root(rekey *r, uint32_t owner, const place_in_root *p, value dict,
                                   fsdpck_error *err)
{
    value_pool *pool = &r->cat->pool;
    const rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    value made;
    size_t at;

    if (o->flat || r->to == OPTIM_KEYS_FLAT) {
        RETURN_IF(make_anew(r, owner, dict, &made, err));
        if (o->depth == 0)
            r->cat->root = made;
        else
            value_set_item(pool, p->holder, p->at, made);
        return FSDPCK_OK;
    }
    if (find_key(pool, dict, "state", &at)) {
        RETURN_IF(rekey_dict(r, o, value_item(pool, dict, at), &made, err));
        value_set_item(pool, dict, at, made);
    }
    if (find_key(pool, dict, "param_groups", &at))
        return rekey_group_list(r, o, value_item(pool, dict, at), &made, err);
    return FSDPCK_OK;
}

/* torch's Optimizer.load_state_dict() takes no state dict without it. */
static fsdpck_status add_state(rekey *r, value dict, fsdpck_error *err)
{
    value_pool *pool = &r->cat->pool;
    value key, state;
    size_t at;
    if (find_key(pool, dict, "state", &at))
        return FSDPCK_OK;
    RETURN_IF(value_new_str(pool, "state", 5, &key, err));
    RETURN_IF(value_new_dict(pool, &state, err));
    return value_dict_put(pool, dict, key, state, err);
}

static fsdpck_status find_in_root(rekey *r, const rekey_optimizer *o, place_in_root *p, value *dict,
                                  fsdpck_error *err)
{
    value_pool *pool = &r->cat->pool;
    bool found = true;
    *p = (place_in_root){.container = r->cat->root};
    for (uint32_t i = 0; found && i < o->depth; i++)
        found = step_into(r, value_item(pool, o->sample, i), p);
    if (found && value_as_dict(pool, p->container, dict))
        return FSDPCK_OK;
    return rekey_fail(r, o, FSDPCK_INTERNAL, FSDPCK_FINDING_NONE, err,
                      "nesting of the state contradicts its paths");
}

fsdpck_status rekey_root(rekey *r, fsdpck_error *err)
{
    for (uint32_t i = 0; i < r->optimizers.count; i++) {
        const rekey_optimizer *o = REKEY_OPTIMIZER(r, i);
        place_in_root p;
        value dict;
        if (o->same && (o->flat || r->to == OPTIM_KEYS_FLAT))
            continue;
        RETURN_IF(find_in_root(r, o, &p, &dict, err));
        if (r->to != OPTIM_KEYS_FLAT && !o->flat)
            RETURN_IF(add_state(r, dict, err));
        if (!o->same)
            RETURN_IF(rekey_in_root(r, i, &p, dict, err));
    }
    return FSDPCK_OK;
}
