#include "statedict/description_match.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/fqn.h"
#include "model/model_internal.h"
#include "statedict/unflatten_internal.h"

fsdpck_status description_match_init(description_match *a, const model *m, const unit_list *units,
                                     fsdpck_error *err)
{
    const uint64_t nmodules = m->modules.count, nparams = m->params.count;
    *a = (description_match){.m = m, .units = units, .tensors = VEC_OF(uint32_t, m->owner)};
    strtab_init(&a->keys, m->owner);
    a->scopes = budget_alloc(m->owner, nmodules + nparams + 1, err);
    if (a->scopes == NULL)
        return FSDPCK_LIMIT;
    a->ignored = a->scopes + nmodules;
    model_find_scopes(m, a->scopes, a->ignored);
    return FSDPCK_OK;
}

void description_match_release(description_match *a)
{
    if (a->scopes != NULL)
        budget_free(a->m->owner, a->scopes, a->m->modules.count + a->m->params.count + 1);
    strtab_release(&a->keys);
    vec_release(&a->tensors);
    *a = (description_match){0};
}

/* --- names --- */

static bool is_known(const description_match *a, const char *key, size_t nbytes)
{
    return model_find_param(a->m, key, nbytes) != MODEL_NONE ||
           model_find_buffer(a->m, key, nbytes) != MODEL_NONE ||
           unit_list_find_param(a->units, key, nbytes, NULL) != NULL;
}

static bool is_local_name(const description_match *a, const char *key, size_t nbytes)
{
    const uint32_t param = model_find_param(a->m, key, nbytes);
    const uint32_t buffer = model_find_buffer(a->m, key, nbytes);
    if (param != MODEL_NONE)
        return a->scopes[model_param_at(a->m, param)->module] & SCOPE_LOCAL;
    return buffer != MODEL_NONE && a->scopes[model_buffer_at(a->m, buffer)->module] & SCOPE_LOCAL;
}

/* Splits 'state.FQN.exp_avg' into the FQN and the rest; other names are unchanged. */
static size_t without_state_key(const char *text, size_t at, size_t nbytes)
{
    const size_t n = nbytes;
    if (at < 6 || memcmp(text + at - 6, "state.", 6) != 0 || (at > 6 && text[at - 7] != '.'))
        return nbytes;
    while (nbytes > at && text[nbytes - 1] != '.')
        nbytes--;
    return nbytes > at ? nbytes - 1 : n;
}

bool description_is_local(const description_match *a, const char *name, size_t nbytes)
{
    text_buf clean = {0};
    bool local = false;
    fqn_clean(name, nbytes, false, &clean);
    if (text_check(&clean, NULL) != FSDPCK_OK)
        return false;
    const char *text = clean.text;
    for (size_t at = 0; !local && at < clean.nbytes;) {
        const size_t end = without_state_key(text, at, clean.nbytes);
        local = is_local_name(a, text + at, clean.nbytes - at) ||
                (end != clean.nbytes && is_local_name(a, text + at, end - at));
        const char *dot = memchr(text + at, '.', clean.nbytes - at);
        at = dot == NULL ? clean.nbytes : (size_t)(dot - text) + 1;
    }
    text_release(&clean);
    return local;
}

const char *description_alias(const description_match *a, const char *fqn, size_t nbytes,
                              unsigned k, size_t *alias_nbytes)
{
    const uint32_t self = model_find_param(a->m, fqn, nbytes);
    if (self == MODEL_NONE)
        return NULL;
    for (uint32_t i = model_param_first(a->m, self); i != MODEL_NONE;
         i = model_param_at(a->m, i)->next_name)
        if (i != self && k-- == 0)
            return model_name(a->m, model_param_at(a->m, i)->name, alias_nbytes);
    return NULL;
}

/* --- tensors of the model --- */

/* Moments of an optimizer, whose file may have no outer key. */
static bool is_state(const catalogue *c, const cat_tensor *t)
{
    const size_t count = value_count(&c->pool, t->path);
    if (count >= 3)
        return value_is_str(&c->pool, value_item(&c->pool, t->path, count - 3), "state");
    const char *name = catalogue_name(c, t->name);
    return value_is_none(t->path) && strncmp(name, "state.", 6) == 0;
}

static bool is_candidate(const description_match *a, uint32_t i)
{
    const cat_tensor *t = catalogue_tensor(a->cat, i);
    return a->part[i] == 0 && (t->flags & (CAT_TENSOR_IN_OBJECT | CAT_TENSOR_STORAGE)) == 0 &&
           !is_state(a->cat, t);
}

/* The clean key; `ddp`: also removes one leading `module.`. */
static fsdpck_status clean_key(const flat_name *n, size_t at, bool ddp, text_buf *key,
                               fsdpck_error *err)
{
    const size_t end = n->key_at + n->key_nbytes;
    key->nbytes = 0;
    fqn_clean(n->text + at, end > at ? end - at : 0, ddp, key);
    text_append(key, "", 0);
    return text_check(key, err);
}

/* Whether a tensor's name is in the description: sets the bytes of the outer key before it, and
 * whether DDP's `module.` follows that. */
static fsdpck_status find_outer(const description_match *a, const flat_name *n, bool has_path,
                                size_t *outer, bool *ddp, bool *found, fsdpck_error *err)
{
    text_buf key = {0};
    fsdpck_status st = FSDPCK_OK;
    *outer = n->key_at;
    *found = false;
    while (st == FSDPCK_OK && !*found && *outer < n->key_at + n->key_nbytes) {
        for (unsigned strip = 0; st == FSDPCK_OK && !*found && strip < 2; strip++) {
            *ddp = strip == 1;
            st = clean_key(n, *outer, *ddp, &key, err);
            *found = st == FSDPCK_OK && is_known(a, key.text, key.nbytes);
        }
        const char *dot = memchr(n->text + *outer, '.', n->key_at + n->key_nbytes - *outer);
        if (*found || has_path || dot == NULL)
            break;
        *outer = (size_t)(dot - n->text) + 1;
    }
    text_release(&key);
    return st;
}

static fsdpck_status take_key(description_match *a, uint32_t tensor, const char *key, size_t nbytes,
                              fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&a->keys, key, nbytes, &id, err));
    if (id < a->tensors.count)
        return FSDPCK_OK;
    return vec_add(&a->tensors, &(uint32_t){tensor}, err);
}

static fsdpck_status take_keys(description_match *a, const flat_name *sample, size_t outer,
                               bool ddp, bool has_path, fsdpck_error *err)
{
    text_buf key = {0};
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; st == FSDPCK_OK && i < catalogue_tensor_count(a->cat); i++) {
        flat_name n;
        if (!is_candidate(a, i))
            continue;
        flat_name_read(a->cat, i, &n);
        if (has_path != !value_is_none(catalogue_tensor(a->cat, i)->path) ||
            (has_path && n.key_at != outer) || n.key_at + n.key_nbytes <= outer ||
            memcmp(n.text, sample->text, outer) != 0)
            continue;
        st = clean_key(&n, outer, ddp, &key, err);
        if (st == FSDPCK_OK)
            st = take_key(a, i, key.text, key.nbytes, err);
    }
    text_release(&key);
    return st;
}

fsdpck_status description_match_set(description_match *a, const catalogue *cat, const uint8_t *part,
                                    fsdpck_error *err)
{
    strtab_release(&a->keys);
    strtab_init(&a->keys, a->m->owner);
    a->tensors.count = 0;
    a->cat = cat;
    a->part = part;
    a->known = false;
    a->has_flat = flat_params_count(cat, NULL) > 0;
    a->sample = CAT_NONE;
    for (uint32_t i = 0; !a->known && i < catalogue_tensor_count(cat); i++) {
        const bool has_path = !value_is_none(catalogue_tensor(cat, i)->path);
        flat_name n;
        size_t outer = 0;
        bool ddp = false;
        if (!is_candidate(a, i))
            continue;
        flat_name_read(cat, i, &n);
        if (a->sample == CAT_NONE && !flat_name_is_flat(n.text, n.key_at + n.key_nbytes))
            a->sample = i;
        RETURN_IF(find_outer(a, &n, has_path, &outer, &ddp, &a->known, err));
        if (a->known)
            RETURN_IF(take_keys(a, &n, outer, ddp, has_path, err));
    }
    return FSDPCK_OK;
}

uint32_t description_match_find(const description_match *a, const char *fqn, size_t nbytes)
{
    const uint32_t id = strtab_find(&a->keys, fqn, nbytes);
    return id == STRTAB_NONE ? CAT_NONE : *VEC_AT(&a->tensors, const uint32_t, id);
}

uint32_t description_match_find_in(const description_match *a, uint32_t module, const char *fqn,
                                   size_t nbytes)
{
    const model_module *at = model_module_at(a->m, module);
    uint32_t tensor = description_match_find(a, fqn, nbytes);
    text_buf walk = {0};
    size_t path_nbytes, local = nbytes;
    if (tensor != CAT_NONE || at->state_path == MODEL_NONE)
        return tensor;
    const char *path = model_name(a->m, at->name, &path_nbytes);
    while (local > 0 && fqn[local - 1] != '.')
        local--;
    text_append(&walk, path, path_nbytes);
    if (path_nbytes > 0)
        text_puts(&walk, ".");
    text_append(&walk, fqn + local, nbytes - local);
    if (text_check(&walk, NULL) == FSDPCK_OK)
        tensor = description_match_find(a, walk.text, walk.nbytes);
    text_release(&walk);
    return tensor;
}

/* --- names of one parameter --- */

typedef struct named {
    const char *fqn;
    size_t nbytes;
    uint32_t tensor; /* CAT_NONE: missing */
} named;

/* The first existing name of a group so far. */
typedef struct tie_group {
    const description_match *a;
    vec *ties;
    named head;
} tie_group;

static bool same_meaning(const description_match *a, uint32_t x, uint32_t y)
{
    const cat_tensor *t = catalogue_tensor(a->cat, x), *u = catalogue_tensor(a->cat, y);
    return t->dtype == u->dtype &&
           shape_equal(catalogue_shape(a->cat, x), t->ndim, catalogue_shape(a->cat, y), u->ndim);
}

void description_print_shape(dtype d, unsigned ndim, const uint64_t *shape, char *text,
                             size_t capacity)
{
    size_t at = 0;
    const char *name = d == DTYPE_NONE ? "" : dtype_get(d)->name;
    int n = snprintf(text, capacity, "%s%s[", name, name[0] == '\0' ? "" : " ");
    for (unsigned i = 0; i < ndim && n >= 0 && at + (size_t)n < capacity; i++) {
        at += (size_t)n;
        n = snprintf(text + at, capacity - at, "%s%" PRIu64, i == 0 ? "" : ", ", shape[i]);
    }
    if (n >= 0 && at + (size_t)n < capacity)
        snprintf(text + at + n, capacity - at - (size_t)n, "]");
}

void description_print_tensor(const catalogue *c, uint32_t tensor, char *text, size_t capacity)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    description_print_shape((dtype)t->dtype, t->ndim, catalogue_shape(c, tensor), text, capacity);
}

static fsdpck_status refuse_alias(const description_match *a, const named *head, const named *twin,
                                  fsdpck_error *err)
{
    char expected[160], found[160];
    description_print_tensor(a->cat, head->tensor, expected, sizeof expected);
    description_print_tensor(a->cat, twin->tensor, found, sizeof found);
    return FAIL_WITH(err, BADINPUT, TIE_DIFFERS,
                     ("names of one tensor in the model have different tensors in the checkpoint"),
                     (tensor, twin->fqn), (expected, "%s, as in '%s'", expected, head->fqn),
                     (found, "%s", found),
                     (next, "describe the model of this checkpoint: fsdpck-model(5)"));
}

static fsdpck_status add_tie(const tie_group *g, const named *twin, fsdpck_error *err)
{
    if (twin->tensor != CAT_NONE && !same_meaning(g->a, g->head.tensor, twin->tensor))
        return refuse_alias(g->a, &g->head, twin, err);
    return vec_add(g->ties,
                   &(description_tie){.first = g->head.tensor,
                                      .twin = twin->tensor,
                                      .fqn = twin->fqn,
                                      .fqn_nbytes = twin->nbytes,
                                      .first_fqn = g->head.fqn,
                                      .first_fqn_nbytes = g->head.nbytes},
                   err);
}

static named name_param(const description_match *a, uint32_t param)
{
    named n;
    n.fqn = model_name(a->m, model_param_at(a->m, param)->name, &n.nbytes);
    n.tensor = description_match_find_in(a, model_param_at(a->m, param)->module, n.fqn, n.nbytes);
    return n;
}

static const unit_param *slot_of(const description_match *a, const named *n)
{
    return unit_list_find_param(a->units, n->fqn, n->nbytes, NULL);
}

/* A flattened parameter: tensors with its names next to the flat one are a rank's shards. */
static bool is_flattened(const description_match *a, const named *n)
{
    const unit *u = NULL;
    return a->has_flat && unit_list_find_param(a->units, n->fqn, n->nbytes, &u) != NULL &&
           unit_is_sharded(u);
}

/* All names of parameter `first`. */
static fsdpck_status tie_param(const description_match *a, uint32_t first, vec *ties,
                               fsdpck_error *err)
{
    tie_group g = {.a = a, .ties = ties, .head = {.tensor = CAT_NONE}};
    uint32_t head = first;
    for (uint32_t i = first; i != MODEL_NONE && g.head.tensor == CAT_NONE;
         i = model_param_at(a->m, i)->next_name) {
        g.head = name_param(a, i);
        head = i;
    }
    if (g.head.tensor == CAT_NONE || is_flattened(a, &g.head))
        return FSDPCK_OK;
    for (uint32_t i = first; i != MODEL_NONE; i = model_param_at(a->m, i)->next_name) {
        const named n = name_param(a, i);
        if (i != head && slot_of(a, &n) == slot_of(a, &g.head) &&
            !(a->scopes[model_param_at(a->m, i)->module] & SCOPE_LOCAL))
            RETURN_IF(add_tie(&g, &n, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status tie_pair(const description_match *a, named first, named twin, vec *ties,
                              fsdpck_error *err)
{
    tie_group g = {.a = a, .ties = ties};
    first.tensor = description_match_find(a, first.fqn, first.nbytes);
    twin.tensor = description_match_find(a, twin.fqn, twin.nbytes);
    g.head = first.tensor != CAT_NONE ? first : twin;
    if (g.head.tensor == CAT_NONE || is_flattened(a, &g.head))
        return FSDPCK_OK;
    return add_tie(&g, first.tensor != CAT_NONE ? &twin : &first, err);
}

static fsdpck_status tie_buffers(const description_match *a, vec *ties, fsdpck_error *err)
{
    for (uint32_t i = 0; i < model_buffer_count(a->m); i++) {
        const model_buffer *b = model_buffer_at(a->m, i);
        named first, twin;
        if (b->same_as == MODEL_NONE || !b->persistent || a->scopes[b->module] & SCOPE_LOCAL)
            continue;
        first.fqn = model_name(a->m, model_buffer_at(a->m, b->same_as)->name, &first.nbytes);
        twin.fqn = model_name(a->m, b->name, &twin.nbytes);
        RETURN_IF(tie_pair(a, first, twin, ties, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status tie_units(const description_match *a, vec *ties, fsdpck_error *err)
{
    const unit_list *l = a->units;
    for (uint32_t i = 0; i < unit_count(l); i++)
        for (uint32_t k = 0; k < unit_at(l, i)->nshared; k++) {
            const unit_shared *s = unit_shared_at(l, unit_at(l, i), k);
            named first, twin;
            first.fqn = unit_name(l, s->same_as, &first.nbytes);
            twin.fqn = unit_name(l, s->fqn, &twin.nbytes);
            RETURN_IF(tie_pair(a, first, twin, ties, err));
        }
    return FSDPCK_OK;
}

fsdpck_status description_match_ties(const description_match *a, vec *ties, fsdpck_error *err)
{
    if (!a->known)
        return FSDPCK_OK;
    if (a->m->lists_units)
        return tie_units(a, ties, err);
    for (uint32_t i = 0; i < model_param_count(a->m); i++)
        if (model_param_at(a->m, i)->same_as == MODEL_NONE &&
            model_param_at(a->m, i)->next_name != MODEL_NONE)
            RETURN_IF(tie_param(a, i, ties, err));
    return tie_buffers(a, ties, err);
}
