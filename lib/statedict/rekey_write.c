/* The catalogue's tensors and objects under their new names. */
#include <inttypes.h>
#include <string.h>

#include "statedict/rekey_internal.h"

/* --- names and paths --- */

typedef struct writing {
    rekey *r;
    text_buf name;
    vec elements; /* value */
} writing;

static fsdpck_status push(writing *w, value v, fsdpck_error *err)
{
    return vec_add(&w->elements, &(value){v}, err);
}

static fsdpck_status push_text(writing *w, const char *text, size_t nbytes, fsdpck_error *err)
{
    value v;
    RETURN_IF(value_new_str(&w->r->cat->pool, text, nbytes, &v, err));
    return push(w, v, err);
}

/* The elements before `state` or `param_groups`. */
static fsdpck_status begin_path(writing *w, const rekey_optimizer *o, fsdpck_error *err)
{
    const value_pool *pool = &w->r->cat->pool;
    w->elements.count = 0;
    for (uint32_t i = 0; i < o->depth; i++)
        RETURN_IF(push(w, value_item(pool, o->sample, i), err));
    return FSDPCK_OK;
}

static fsdpck_status end_path(writing *w, value *path, fsdpck_error *err)
{
    return value_new_from(&w->r->cat->pool, VALUE_TUPLE, w->elements.items, w->elements.count, path,
                          err);
}

/* For the name of a state: sets w->name to the new name, and *label_at to the new label's position
 * in it. */
static fsdpck_status state_name(writing *w, const rekey_optimizer *o, const rekey_entry *e,
                                uint32_t name, size_t *label_at, size_t *label_nbytes,
                                fsdpck_error *err)
{
    const catalogue *c = w->r->cat;
    const char *text = catalogue_name(c, name);
    const size_t nbytes = catalogue_name_nbytes(c, name);
    const size_t skip = strtab_nbytes(&w->r->texts, o->prefix) + strlen("state.");
    if (skip + e->key > nbytes)
        return FAIL(err, BADINPUT, KEY_NEST,
                    "name of a value in optimizer state contradicts its nested keys");
    w->name.nbytes = 0;
    text_append(&w->name, text, skip);
    *label_at = skip;
    rekey_label(w->r, o, e->at, &w->name);
    *label_nbytes = w->name.nbytes - skip;
    text_append(&w->name, text + skip + e->key, nbytes - skip - e->key);
    return text_check(&w->name, err);
}

/* old: the path that the entry has. */
static fsdpck_status state_path(writing *w, const rekey_optimizer *o, value old, size_t label_at,
                                size_t label_nbytes, value *path, fsdpck_error *err)
{
    value_pool *pool = &w->r->cat->pool;
    const size_t prefix = strtab_nbytes(&w->r->texts, o->prefix);
    const char *text = w->name.text;
    value v;

    RETURN_IF(begin_path(w, o, err));
    if (w->r->to == OPTIM_KEYS_FLAT) {
        RETURN_IF(push_text(w, text + prefix, w->name.nbytes - prefix, err));
        return end_path(w, path, err);
    }
    RETURN_IF(push_text(w, "state", 5, err));
    if (w->r->to == OPTIM_KEYS_ID)
        RETURN_IF(value_new_bytes(pool, text + label_at, label_nbytes, &v, err));
    else
        RETURN_IF(value_new_str(pool, text + label_at, label_nbytes, &v, err));
    RETURN_IF(push(w, v, err));
    if (o->flat && label_at + label_nbytes + 1 < w->name.nbytes) {
        const size_t at = label_at + label_nbytes + 1;
        RETURN_IF(push_text(w, text + at, w->name.nbytes - at, err));
    }
    for (size_t i = o->depth + 2u; !o->flat && i < value_count(pool, old); i++)
        RETURN_IF(push(w, value_item(pool, old, i), err));
    return end_path(w, path, err);
}

fsdpck_status rekey_note_param(rekey *r, const rekey_position *p, uint32_t tensor,
                               fsdpck_error *err)
{
    cat_tensor *t = catalogue_tensor(r->cat, tensor);
    t->flags |= p->open ? CAT_TENSOR_PARAM_OPEN : 0;
    if (p->name == REKEY_NONE)
        return FSDPCK_OK;
    return strtab_intern(&r->cat->names, strtab_text(&r->texts, p->name),
                         strtab_nbytes(&r->texts, p->name), &t->param, err);
}

static fsdpck_status write_state(writing *w, const rekey_entry *e, fsdpck_error *err)
{
    catalogue *c = w->r->cat;
    const rekey_optimizer *o = REKEY_OPTIMIZER(w->r, e->owner);
    const rekey_position *p = REKEY_POSITION(o, e->at);
    const uint32_t name =
        e->is_object ? catalogue_object(c, e->index)->name : catalogue_tensor(c, e->index)->name;
    const value old =
        e->is_object ? catalogue_object(c, e->index)->path : catalogue_tensor(c, e->index)->path;
    size_t label_at = 0, label_nbytes = 0;
    uint32_t id;
    value path;

    RETURN_IF(state_name(w, o, e, name, &label_at, &label_nbytes, err));
    RETURN_IF(state_path(w, o, old, label_at, label_nbytes, &path, err));
    RETURN_IF(strtab_intern(&c->names, w->name.text, w->name.nbytes, &id, err));
    if (e->is_object) {
        catalogue_object(c, e->index)->name = id;
        catalogue_object(c, e->index)->path = path;
        return FSDPCK_OK;
    }
    catalogue_tensor(c, e->index)->path = path;
    RETURN_IF(catalogue_rename(c, e->index, w->name.text, w->name.nbytes, err));
    return rekey_note_param(w->r, p, e->index, err);
}

static fsdpck_status check_form(const rekey *r, const rekey_entry *e, fsdpck_error *err)
{
    const catalogue *c = r->cat;
    const rekey_optimizer *o = REKEY_OPTIMIZER(r, e->owner);
    if ((r->to != OPTIM_KEYS_FLAT && !o->flat) || (e->kind == REKEY_HYPER && e->is_object))
        return FSDPCK_OK;
    const char *name = catalogue_name(c, e->is_object ? catalogue_object(c, e->index)->name
                                                      : catalogue_tensor(c, e->index)->name);
    if (e->kind == REKEY_HYPER)
        return rekey_fail(r, o, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_MODEL_OPTIM, err,
                          "hyperparameter '%.200s' is a tensor, which cannot be converted to or "
                          "from the flattened form",
                          name);
    if (e->kind != REKEY_STATE || e->at != REKEY_NONE)
        return FSDPCK_OK;
    return rekey_fail(r, o, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_MODEL_OPTIM, err,
                      "state '%.200s' belongs to no parameter of the param_groups", name);
}

fsdpck_status rekey_tensors(rekey *r, fsdpck_error *err)
{
    writing w = {.r = r, .elements = VEC_OF(value, r->cat->owner)};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(r, i);
        if (REKEY_OPTIMIZER(r, e->owner)->same)
            continue;
        st = check_form(r, e, err);
        if (st == FSDPCK_OK && e->kind == REKEY_STATE && e->at != REKEY_NONE)
            st = write_state(&w, e, err);
    }
    text_release(&w.name);
    vec_release(&w.elements);
    return st;
}

/* --- objects --- */

typedef struct rewriting {
    writing w;
    vec objects;        /* cat_object: the new list */
    uint32_t *entry_of; /* by object: entry + 1 */
    uint8_t *written;   /* by optimizer: its groups */
    uint32_t saved_at;  /* of rebuilt values: that of the first source */
} rewriting;

static fsdpck_status add_object(rewriting *x, const char *name, size_t nbytes, value path,
                                value content, fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&x->w.r->cat->names, name, nbytes, &id, err));
    return vec_add(&x->objects,
                   &(cat_object){.name = id,
                                 .file = CAT_NONE,
                                 .rank = UINT16_MAX,
                                 .loaded = 1,
                                 .saved_at = x->saved_at,
                                 .path = path,
                                 .content = content},
                   err);
}

/* 'param_groups.FQN.lr' */
static fsdpck_status add_flat(rewriting *x, const rekey_optimizer *o, uint32_t position,
                              const char *key, size_t key_nbytes, value content, fsdpck_error *err)
{
    writing *w = &x->w;
    const size_t prefix = strtab_nbytes(&w->r->texts, o->prefix);
    value path;
    w->name.nbytes = 0;
    text_append(&w->name, strtab_text(&w->r->texts, o->prefix), prefix);
    text_puts(&w->name, "param_groups.");
    rekey_label(w->r, o, position, &w->name);
    text_append(&w->name, ".", 1);
    text_append(&w->name, key, key_nbytes);
    RETURN_IF(text_check(&w->name, err));
    RETURN_IF(begin_path(w, o, err));
    RETURN_IF(push_text(w, w->name.text + prefix, w->name.nbytes - prefix, err));
    RETURN_IF(end_path(w, &path, err));
    return add_object(x, w->name.text, w->name.nbytes, path, content, err);
}

/* 'param_groups.0.lr' */
static fsdpck_status add_nested(rewriting *x, const rekey_optimizer *o, const rekey_group *g,
                                const char *key, size_t key_nbytes, value content,
                                fsdpck_error *err)
{
    writing *w = &x->w;
    value path, index;
    w->name.nbytes = 0;
    text_append(&w->name, strtab_text(&w->r->texts, o->prefix),
                strtab_nbytes(&w->r->texts, o->prefix));
    text_printf(&w->name, "param_groups.%" PRIu32 ".", g->index);
    text_append(&w->name, key, key_nbytes);
    RETURN_IF(text_check(&w->name, err));
    RETURN_IF(begin_path(w, o, err));
    RETURN_IF(push_text(w, "param_groups", 12, err));
    RETURN_IF(value_new_int(&w->r->cat->pool, g->index, &index, err));
    RETURN_IF(push(w, index, err));
    RETURN_IF(push_text(w, key, key_nbytes, err));
    RETURN_IF(end_path(w, &path, err));
    return add_object(x, w->name.text, w->name.nbytes, path, content, err);
}

static fsdpck_status flatten_hyper(rewriting *x, const rekey_optimizer *o, const rekey_group *g,
                                   const char *key, size_t nbytes, value content, fsdpck_error *err)
{
    for (uint32_t k = 0; k < g->count; k++)
        RETURN_IF(add_flat(x, o, *REKEY_MEMBER(o, g->first + k), key, nbytes, content, err));
    return FSDPCK_OK;
}

static fsdpck_status flatten_dict(rewriting *x, const rekey_optimizer *o, const rekey_group *g,
                                  fsdpck_error *err)
{
    strtab *texts = &x->w.r->texts;
    const value_pool *pool = &x->w.r->cat->pool;
    for (size_t i = 0; i < value_count(pool, g->whole); i++) {
        const value key = value_key(pool, g->whole, i);
        size_t nbytes = 0;
        uint32_t id;
        const char *text = value_text(pool, key, &nbytes);
        if (value_kind_of(key) != VALUE_STR || value_is_str(pool, key, "params"))
            continue;
        RETURN_IF(strtab_intern(texts, text, nbytes, &id, err)); /* the pool may move */
        RETURN_IF(flatten_hyper(x, o, g, strtab_text(texts, id), nbytes,
                                value_item(pool, g->whole, i), err));
    }
    return FSDPCK_OK;
}

/* All groups of one optimizer, flattened. */
static fsdpck_status write_flat(rewriting *x, uint32_t owner, fsdpck_error *err)
{
    rekey *r = x->w.r;
    const rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    size_t empty = 0;
    for (size_t i = 0; i < o->groups.count; i++) {
        const rekey_group *g = REKEY_GROUP(o, i);
        empty += g->count == 0;
        if (!value_is_none(g->whole))
            RETURN_IF(flatten_dict(x, o, g, err));
    }
    if (empty > 0) {
        const fsdpck_status st =
            rekey_fail(r, o, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_MODEL_OPTIM, err,
                       "the flattened form cannot represent %zu "
                       "param_group%s without parameters",
                       empty, empty == 1 ? "" : "s");
        error_next(err, "use --optim-keys name, which keeps all groups");
        return st;
    }
    if (o->groups.count > 1)
        log_warn(r->log, FSDPCK_FINDING_OPTIM_GROUPS,
                 "use --optim-keys name, which keeps all groups, or keep a description of the "
                 "optimizer: 'optimizers' in fsdpck-model(5)",
                 "the flattened form does not record the %zu param_groups: groups with equal "
                 "hyperparameters become one when it is read",
                 o->groups.count);
    for (size_t i = 0; i < r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(r, i);
        if (e->owner != owner || (e->kind != REKEY_HYPER && e->kind != REKEY_NAMES) ||
            !e->is_object)
            continue;
        const cat_object *from = catalogue_object(r->cat, e->index);
        if (e->key == REKEY_NONE || from->rank != UINT16_MAX)
            return rekey_fail(r, o, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_MODEL_OPTIM, err,
                              "hyperparameter '%.200s' is nested, or differs between ranks",
                              catalogue_name(r->cat, from->name));
        for (size_t k = 0; k < o->groups.count; k++)
            if (REKEY_GROUP(o, k)->index == e->at)
                RETURN_IF(flatten_hyper(x, o, REKEY_GROUP(o, k), strtab_text(&r->texts, e->key),
                                        strtab_nbytes(&r->texts, e->key), from->content, err));
    }
    return FSDPCK_OK;
}

/* All groups of one flattened optimizer: the hyperparameters of their first parameter. */
static fsdpck_status write_nested(rewriting *x, uint32_t owner, fsdpck_error *err)
{
    rekey *r = x->w.r;
    const rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    uint32_t *group_of =
        budget_alloc(r->cat->owner, (o->positions.count + 1) * sizeof *group_of, err);
    if (group_of == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; i < o->groups.count; i++)
        if (REKEY_GROUP(o, i)->count > 0)
            group_of[*REKEY_MEMBER(o, REKEY_GROUP(o, i)->first)] = i + 1;
    for (size_t i = 0; st == FSDPCK_OK && i < r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(r, i);
        if (e->owner == owner && e->kind == REKEY_HYPER && e->is_object && group_of[e->at] > 0)
            st = add_nested(x, o, REKEY_GROUP(o, group_of[e->at] - 1),
                            strtab_text(&r->texts, e->key), strtab_nbytes(&r->texts, e->key),
                            catalogue_object(r->cat, e->index)->content, err);
    }
    for (size_t i = 0; st == FSDPCK_OK && i < o->groups.count; i++)
        st = add_nested(x, o, REKEY_GROUP(o, i), "params", 6, REKEY_GROUP(o, i)->new_params, err);
    budget_free(r->cat->owner, group_of, (o->positions.count + 1) * sizeof *group_of);
    return st;
}

static fsdpck_status keep_object(rewriting *x, const cat_object *from, fsdpck_error *err)
{
    return vec_add(&x->objects, from, err);
}

/* An object that is a dict: the whole state, or that of a parameter without tensors. */
static fsdpck_status flatten_state_object(rewriting *x, const rekey_optimizer *o,
                                          const cat_object *from, bool *gone, fsdpck_error *err)
{
    value_pool *pool = &x->w.r->cat->pool;
    const value_kind kind = value_kind_of(from->content);
    *gone = false;
    if (kind != VALUE_DICT && kind != VALUE_CALL)
        return FSDPCK_OK;
    value dict;
    *gone = value_as_dict(pool, from->content, &dict) && value_count(pool, dict) == 0;
    if (*gone)
        return FSDPCK_OK;
    return rekey_fail(x->w.r, o, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_MODEL_OPTIM, err,
                      "state '%.200s' is a dict, which the flattened form cannot represent",
                      catalogue_name(x->w.r->cat, from->name));
}

static fsdpck_status write_object(rewriting *x, uint32_t object, fsdpck_error *err)
{
    rekey *r = x->w.r;
    cat_object from = *catalogue_object(r->cat, object);
    const rekey_entry *e =
        x->entry_of[object] == 0 ? NULL : REKEY_ENTRY(r, x->entry_of[object] - 1);
    const rekey_optimizer *o = e == NULL ? NULL : REKEY_OPTIMIZER(r, e->owner);
    bool gone = false;

    if (o == NULL || o->same)
        return keep_object(x, &from, err);
    if (e->kind == REKEY_STATE || e->kind == REKEY_STATE_ALL) {
        if (r->to == OPTIM_KEYS_FLAT && from.loaded)
            RETURN_IF(flatten_state_object(x, o, &from, &gone, err));
        else if (e->kind == REKEY_STATE_ALL)
            RETURN_IF(rekey_dict(r, o, from.content, &from.content, err));
        return gone ? FSDPCK_OK : keep_object(x, &from, err);
    }
    if (r->to == OPTIM_KEYS_FLAT || o->flat) {
        if (x->written[e->owner])
            return FSDPCK_OK;
        x->written[e->owner] = 1;
        x->saved_at = from.saved_at;
        return o->flat ? write_nested(x, e->owner, err) : write_flat(x, e->owner, err);
    }
    for (size_t i = 0; e->kind == REKEY_PARAMS && i < o->groups.count; i++)
        if (REKEY_GROUP(o, i)->params == object)
            from.content = REKEY_GROUP(o, i)->new_params;
    if (e->kind == REKEY_GROUPS_ALL)
        RETURN_IF(rekey_group_list(r, o, from.content, &from.content, err));
    return keep_object(x, &from, err);
}

/* 'state' = {} of an optimizer that has none: DCP has no key for it, torch's load_state_dict() takes
 * nothing without it. */
static fsdpck_status add_empty_state(rewriting *x, uint32_t owner, fsdpck_error *err)
{
    writing *w = &x->w;
    const rekey *r = w->r;
    const rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    value path, state;
    if (r->to == OPTIM_KEYS_FLAT || (o->flat && o->same))
        return FSDPCK_OK;
    for (size_t i = 0; i < r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(r, i);
        if (e->owner == owner && (e->kind == REKEY_STATE || e->kind == REKEY_STATE_ALL))
            return FSDPCK_OK;
    }
    w->name.nbytes = 0;
    text_append(&w->name, strtab_text(&r->texts, o->prefix), strtab_nbytes(&r->texts, o->prefix));
    text_puts(&w->name, "state");
    RETURN_IF(text_check(&w->name, err));
    RETURN_IF(begin_path(w, o, err));
    RETURN_IF(push_text(w, "state", 5, err));
    RETURN_IF(end_path(w, &path, err));
    RETURN_IF(value_new_dict(&w->r->cat->pool, &state, err));
    x->saved_at = CAT_NONE;
    return add_object(x, w->name.text, w->name.nbytes, path, state, err);
}

fsdpck_status rekey_objects(rekey *r, fsdpck_error *err)
{
    catalogue *c = r->cat;
    const size_t count = catalogue_object_count(c);
    rewriting x = {.w = {.r = r, .elements = VEC_OF(value, c->owner)},
                   .objects = VEC_OF(cat_object, c->owner)};
    fsdpck_status st = FSDPCK_OK;
    x.entry_of = budget_alloc(c->owner, count * sizeof *x.entry_of, err);
    x.written = budget_alloc(c->owner, r->optimizers.count, err);
    if (x.entry_of == NULL || x.written == NULL)
        st = FSDPCK_LIMIT;
    for (size_t i = 0; st == FSDPCK_OK && i < r->entries.count; i++)
        if (REKEY_ENTRY(r, i)->is_object)
            x.entry_of[REKEY_ENTRY(r, i)->index] = (uint32_t)i + 1;
    for (uint32_t i = 0; st == FSDPCK_OK && i < count; i++)
        st = write_object(&x, i, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < r->optimizers.count; i++)
        st = add_empty_state(&x, i, err);
    budget_free(c->owner, x.entry_of, count * sizeof *x.entry_of);
    budget_free(c->owner, x.written, r->optimizers.count);
    text_release(&x.w.name);
    vec_release(&x.w.elements);
    if (st != FSDPCK_OK) {
        vec_release(&x.objects);
        return st;
    }
    vec_release(&c->objects);
    c->objects = x.objects;
    vec_trim(&c->objects);
    return FSDPCK_OK;
}
