/* lora_parameters.c: which parameter of a module an adapter of target_parameters belongs to. */
#include <string.h>

#include "base/text.h"
#include "lora/lora_internal.h"

/* Lists of numbers by a text. */
typedef struct lists {
    strtab keys;
    vec first; /* uint32_t by key: a number, or LORA_NONE */
    vec next;  /* uint32_t by number: the next of the list */
} lists;

static fsdpck_status lists_init(lists *l, size_t count, budget *owner, fsdpck_error *err)
{
    *l = (lists){.first = VEC_OF(uint32_t, owner), .next = VEC_OF(uint32_t, owner)};
    strtab_init(&l->keys, owner);
    return count > 0 && vec_push_n(&l->next, count, err) == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
}

static void lists_release(lists *l)
{
    strtab_release(&l->keys);
    VEC_RELEASE_ALL(&l->first, &l->next);
}

static fsdpck_status lists_add(lists *l, const void *key, size_t nbytes, uint32_t number,
                               fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&l->keys, key, nbytes, &id, err));
    if (id == l->first.count)
        RETURN_IF(vec_add(&l->first, &(uint32_t){LORA_NONE}, err));
    *VEC_AT(&l->next, uint32_t, number) = *VEC_AT(&l->first, const uint32_t, id);
    *VEC_AT(&l->first, uint32_t, id) = number;
    return FSDPCK_OK;
}

/* The first number, or LORA_NONE. */
static uint32_t lists_find(const lists *l, const void *key, size_t nbytes)
{
    const uint32_t id = strtab_find(&l->keys, key, nbytes);
    return id == STRTAB_NONE ? LORA_NONE : *VEC_AT(&l->first, const uint32_t, id);
}

static uint32_t lists_next(const lists *l, uint32_t number)
{
    return *VEC_AT(&l->next, const uint32_t, number);
}

/* The wrappers of a module by one adapter, and the parameters of the base model by their modules. */
typedef struct parameter_index {
    lora_set *set;
    const catalogue *c;
    const lora_config *config;
    lists wrappers, parameters;
} parameter_index;

typedef struct wrapper_key {
    uint32_t adapter, path;
} wrapper_key;

/* Length of the path of the module of a parameter. */
static size_t module_nbytes(const char *name, size_t nbytes)
{
    while (nbytes > 0 && name[nbytes - 1] != '.')
        nbytes--;
    return nbytes == 0 ? 0 : nbytes - 1;
}

static fsdpck_status fill_index(parameter_index *x, fsdpck_error *err)
{
    const lora_set *set = x->set;
    for (uint32_t i = (uint32_t)set->tensors.count; i-- > 0;) {
        const lora_tensor *t = VEC_AT(&set->tensors, const lora_tensor, i);
        if (t->role != LORA_ROLE_BASE || catalogue_tensor(x->c, t->tensor)->ndim < 2)
            continue;
        const char *name = strtab_text(&set->names, t->base);
        const size_t n = module_nbytes(name, strtab_nbytes(&set->names, t->base));
        RETURN_IF(lists_add(&x->parameters, name, n, i, err));
    }
    for (uint32_t i = (uint32_t)set->modules.count; i-- > 0;) {
        const lora_module *m = VEC_AT(&set->modules, const lora_module, i);
        const wrapper_key key = {m->adapter, m->path};
        if (m->kind == LORA_PARAMETER)
            RETURN_IF(lists_add(&x->wrappers, &key, sizeof key, i, err));
    }
    return FSDPCK_OK;
}

/* Whether A [r*E, in] and B [out, r*E] fit a parameter [E, out, in] or [E, in, out]; a parameter of two
 * dims is [out, in]. */
static bool fits(const lora_set *set, const catalogue *c, const lora_module *m, uint32_t tensor)
{
    const uint32_t a = lora_cat_tensor(set, m->a), b = lora_cat_tensor(set, m->b);
    if (a == CAT_NONE || b == CAT_NONE || catalogue_tensor(c, a)->ndim != 2 ||
        catalogue_tensor(c, b)->ndim != 2)
        return false;
    const uint64_t *of_a = catalogue_shape(c, a), *of_b = catalogue_shape(c, b);
    const uint64_t *w = catalogue_shape(c, tensor);
    const unsigned ndim = catalogue_tensor(c, tensor)->ndim;
    if (ndim == 2)
        return of_b[0] == w[0] && of_a[1] == w[1];
    return ndim == 3 && w[0] > 0 && of_a[0] % w[0] == 0 &&
           ((of_b[0] == w[1] && of_a[1] == w[2]) || (of_b[0] == w[2] && of_a[1] == w[1]));
}

/* Names of parameters that modules may have, each once. */
typedef struct candidates {
    strtab leaves;
    vec tensors; /* uint32_t: of the catalogue, CAT_NONE: the base model is elsewhere */
} candidates;

static fsdpck_status add_candidate(candidates *k, const char *leaf, size_t nbytes, uint32_t tensor,
                                   fsdpck_error *err)
{
    const size_t known = strtab_count(&k->leaves);
    uint32_t id;
    RETURN_IF(strtab_intern(&k->leaves, leaf, nbytes, &id, err));
    return id < known ? FSDPCK_OK : vec_add(&k->tensors, &tensor, err);
}

bool lora_target_leaf(const lora_config *config, uint32_t target, const char *path, size_t nbytes,
                      const char **leaf, size_t *leaf_nbytes)
{
    const strtab *targets = &config->target_parameters.texts;
    const char *text = strtab_text(targets, target);
    const size_t n = strtab_nbytes(targets, target);
    const size_t module = module_nbytes(text, n);
    const size_t head = memchr(text, '.', n) == NULL ? 0 : module + 1;
    *leaf = text + head;
    *leaf_nbytes = n - head;
    return head == 0 || (module <= nbytes && memcmp(path + nbytes - module, text, module) == 0 &&
                         (module == nbytes || module == 0 || path[nbytes - module - 1] == '.'));
}

/* Parameters of the config whose module is `path`. */
static fsdpck_status add_of_config(candidates *k, const lora_config *config, const char *path,
                                   size_t nbytes, fsdpck_error *err)
{
    const char *leaf;
    size_t n;
    for (uint32_t i = 0; i < strtab_count(&config->target_parameters.texts); i++)
        if (lora_target_leaf(config, i, path, nbytes, &leaf, &n))
            RETURN_IF(add_candidate(k, leaf, n, CAT_NONE, err));
    return FSDPCK_OK;
}

static fsdpck_status add_of_base(candidates *k, const parameter_index *x, const char *path,
                                 size_t nbytes, fsdpck_error *err)
{
    const lora_set *set = x->set;
    const lora_config *config = x->config;
    for (uint32_t i = lists_find(&x->parameters, path, nbytes); i != LORA_NONE;
         i = lists_next(&x->parameters, i)) {
        const lora_tensor *t = VEC_AT(&set->tensors, const lora_tensor, i);
        const char *name = strtab_text(&set->names, t->base);
        const size_t n = strtab_nbytes(&set->names, t->base);
        bool matches = true;
        if (config != NULL && config->target_parameters.is_set)
            RETURN_IF(lora_names_match(&config->target_parameters, name, n, &matches, err));
        if (matches && n > nbytes + 1)
            RETURN_IF(add_candidate(k, name + nbytes + 1, n - nbytes - 1, t->tensor, err));
    }
    return FSDPCK_OK;
}

/* Whether another wrapper of the module has this parameter. */
static bool is_taken(const parameter_index *x, const wrapper_key *key, uint32_t leaf)
{
    for (uint32_t i = lists_find(&x->wrappers, key, sizeof *key); i != LORA_NONE;
         i = lists_next(&x->wrappers, i))
        if (VEC_AT(&x->set->modules, const lora_module, i)->parameter == leaf)
            return true;
    return false;
}

static fsdpck_status choose(const parameter_index *x, const candidates *k, const wrapper_key *key,
                            lora_module *m, bool *chosen, fsdpck_error *err)
{
    uint32_t found = LORA_NONE;
    size_t count = 0;
    for (uint32_t i = 0; i < strtab_count(&k->leaves); i++) {
        const uint32_t tensor = *VEC_AT(&k->tensors, const uint32_t, i);
        const uint32_t id =
            strtab_find(&x->set->names, strtab_text(&k->leaves, i), strtab_nbytes(&k->leaves, i));
        if ((id != STRTAB_NONE && is_taken(x, key, id)) ||
            (tensor != CAT_NONE && !fits(x->set, x->c, m, tensor)))
            continue;
        found = i;
        count++;
    }
    if (count != 1)
        return FSDPCK_OK;
    *chosen = true;
    return strtab_intern(&x->set->names, strtab_text(&k->leaves, found),
                         strtab_nbytes(&k->leaves, found), &m->parameter, err);
}

/* Modules with one possible parameter first; those leave fewer for the others. */
static fsdpck_status name_wrappers(const parameter_index *x, const candidates *k,
                                   const wrapper_key *key, fsdpck_error *err)
{
    for (bool chosen = true; chosen;) {
        chosen = false;
        for (uint32_t i = lists_find(&x->wrappers, key, sizeof *key); i != LORA_NONE;
             i = lists_next(&x->wrappers, i)) {
            lora_module *m = VEC_AT(&x->set->modules, lora_module, i);
            if (m->parameter == LORA_NONE)
                RETURN_IF(choose(x, k, key, m, &chosen, err));
        }
    }
    return FSDPCK_OK;
}

/* Linear modules that the config targets only by a parameter, which may be their weight. */
static fsdpck_status find_targeted(lora_set *set, const lora_config *config, fsdpck_error *err)
{
    for (size_t i = 0; config != NULL && i < set->modules.count; i++) {
        lora_module *m = VEC_AT(&set->modules, lora_module, i);
        const char *path = strtab_text(&set->names, m->path);
        const size_t n = strtab_nbytes(&set->names, m->path);
        candidates k = {.tensors = VEC_OF(uint32_t, set->names.owner)};
        bool is_module = false;
        if (m->kind != LORA_LINEAR)
            continue;
        RETURN_IF(lora_names_match(&config->target_modules, path, n, &is_module, err));
        strtab_init(&k.leaves, set->names.owner);
        const fsdpck_status st = add_of_config(&k, config, path, n, err);
        if (st == FSDPCK_OK && !is_module && strtab_count(&k.leaves) > 0)
            m->kind = LORA_PARAMETER;
        strtab_release(&k.leaves);
        vec_release(&k.tensors);
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}

/* The tensor of the base model with that name. */
static fsdpck_status join_parameter(lora_set *set, lora_module *m, fsdpck_error *err)
{
    text_buf name = {0};
    if (m->kind != LORA_PARAMETER || m->parameter == LORA_NONE)
        return FSDPCK_OK;
    text_append(&name, strtab_text(&set->names, m->path), strtab_nbytes(&set->names, m->path));
    text_puts(&name, ".");
    text_append(&name, strtab_text(&set->names, m->parameter),
                strtab_nbytes(&set->names, m->parameter));
    const fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK)
        m->base_weight = lora_set_find_base(set, name.text, name.nbytes);
    text_release(&name);
    return st;
}

/* All wrappers of a module by one adapter. */
static fsdpck_status name_module(const parameter_index *x, const wrapper_key *key,
                                 fsdpck_error *err)
{
    const char *path = strtab_text(&x->set->names, key->path);
    const size_t n = strtab_nbytes(&x->set->names, key->path);
    candidates k = {.tensors = VEC_OF(uint32_t, x->set->names.owner)};
    strtab_init(&k.leaves, x->set->names.owner);
    fsdpck_status st = add_of_base(&k, x, path, n, err);
    if (st == FSDPCK_OK && x->config != NULL && strtab_count(&k.leaves) == 0)
        st = add_of_config(&k, x->config, path, n, err);
    if (st == FSDPCK_OK)
        st = name_wrappers(x, &k, key, err);
    strtab_release(&k.leaves);
    vec_release(&k.tensors);
    return st;
}

fsdpck_status lora_set_name_parameters(lora_set *set, const catalogue *c, const lora_config *config,
                                       fsdpck_error *err)
{
    parameter_index x = {.set = set, .c = c, .config = config};
    budget *owner = set->names.owner;
    RETURN_IF(find_targeted(set, config, err));
    fsdpck_status st = lists_init(&x.parameters, set->tensors.count, owner, err);
    if (st == FSDPCK_OK)
        st = lists_init(&x.wrappers, set->modules.count, owner, err);
    if (st == FSDPCK_OK)
        st = fill_index(&x, err);
    for (size_t i = 0; i < strtab_count(&x.wrappers.keys) && st == FSDPCK_OK; i++) {
        wrapper_key key;
        memcpy(&key, strtab_text(&x.wrappers.keys, (uint32_t)i), sizeof key);
        st = name_module(&x, &key, err);
    }
    for (size_t i = 0; i < set->modules.count && st == FSDPCK_OK; i++)
        st = join_parameter(set, VEC_AT(&set->modules, lora_module, i), err);
    lists_release(&x.parameters);
    lists_release(&x.wrappers);
    return st;
}
