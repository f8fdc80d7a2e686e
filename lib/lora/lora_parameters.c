/* lora_parameters.c: which parameter of a module an adapter of target_parameters belongs to. */
#include <string.h>

#include "base/text.h"
#include "lora/lora_internal.h"

/* The name of a parameter directly in a module, or NULL. */
static const char *leaf_below(const char *name, size_t nbytes, const char *path, size_t path_nbytes,
                              size_t *leaf_nbytes)
{
    if (nbytes <= path_nbytes + 1 || memcmp(name, path, path_nbytes) != 0 ||
        name[path_nbytes] != '.')
        return NULL;
    const char *leaf = name + path_nbytes + 1;
    *leaf_nbytes = nbytes - path_nbytes - 1;
    return memchr(leaf, '.', *leaf_nbytes) == NULL ? leaf : NULL;
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

/* Parameters of the config whose module is `path`. */
static fsdpck_status add_of_config(candidates *k, const lora_config *config, const char *path,
                                   size_t nbytes, fsdpck_error *err)
{
    const strtab *targets = &config->target_parameters.texts;
    for (uint32_t i = 0; i < strtab_count(targets); i++) {
        const char *target = strtab_text(targets, i);
        const size_t n = strtab_nbytes(targets, i);
        size_t head = n;
        while (head > 0 && target[head - 1] != '.')
            head--;
        if (head == 0) { /* the name of a parameter alone */
            RETURN_IF(add_candidate(k, target, n, CAT_NONE, err));
            continue;
        }
        const size_t module = head - 1;
        if (module > nbytes || memcmp(path + nbytes - module, target, module) != 0 ||
            (module < nbytes && module > 0 && path[nbytes - module - 1] != '.'))
            continue;
        RETURN_IF(add_candidate(k, target + head, n - head, CAT_NONE, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status add_of_base(candidates *k, const lora_set *set, const catalogue *c,
                                 const lora_config *config, const char *path, size_t nbytes,
                                 fsdpck_error *err)
{
    for (size_t i = 0; i < set->tensors.count; i++) {
        const lora_tensor *t = VEC_AT(&set->tensors, const lora_tensor, i);
        size_t leaf_nbytes = 0;
        bool matches = true;
        if (t->role != LORA_ROLE_BASE || catalogue_tensor(c, t->tensor)->ndim < 2)
            continue;
        const char *name = strtab_text(&set->names, t->base);
        const size_t n = strtab_nbytes(&set->names, t->base);
        const char *leaf = leaf_below(name, n, path, nbytes, &leaf_nbytes);
        if (leaf == NULL)
            continue;
        if (config != NULL && config->target_parameters.is_set)
            RETURN_IF(lora_names_match(&config->target_parameters, name, n, &matches, err));
        if (matches)
            RETURN_IF(add_candidate(k, leaf, leaf_nbytes, t->tensor, err));
    }
    return FSDPCK_OK;
}

/* Whether another wrapper of the module has this parameter. */
static bool is_taken(const lora_set *set, const lora_module *of, uint32_t leaf)
{
    for (size_t i = 0; i < set->modules.count; i++) {
        const lora_module *m = VEC_AT(&set->modules, const lora_module, i);
        if (m->adapter == of->adapter && m->path == of->path && m->parameter == leaf)
            return true;
    }
    return false;
}

static fsdpck_status choose(lora_set *set, const catalogue *c, const candidates *k, lora_module *m,
                            bool *chosen, fsdpck_error *err)
{
    uint32_t found = LORA_NONE;
    size_t count = 0;
    for (uint32_t i = 0; i < strtab_count(&k->leaves); i++) {
        const uint32_t tensor = *VEC_AT(&k->tensors, const uint32_t, i);
        uint32_t id =
            strtab_find(&set->names, strtab_text(&k->leaves, i), strtab_nbytes(&k->leaves, i));
        if ((id != STRTAB_NONE && is_taken(set, m, id)) ||
            (tensor != CAT_NONE && !fits(set, c, m, tensor)))
            continue;
        found = i;
        count++;
    }
    if (count != 1)
        return FSDPCK_OK;
    *chosen = true;
    return strtab_intern(&set->names, strtab_text(&k->leaves, found),
                         strtab_nbytes(&k->leaves, found), &m->parameter, err);
}

/* Modules with one possible parameter first; those leave fewer for the others. */
static fsdpck_status name_wrappers(lora_set *set, const catalogue *c, const candidates *k,
                                   const lora_module *of, fsdpck_error *err)
{
    const uint32_t adapter = of->adapter, path = of->path;
    for (bool chosen = true; chosen;) {
        chosen = false;
        for (size_t i = 0; i < set->modules.count; i++) {
            lora_module *m = VEC_AT(&set->modules, lora_module, i);
            if (m->kind == LORA_PARAMETER && m->adapter == adapter && m->path == path &&
                m->parameter == LORA_NONE)
                RETURN_IF(choose(set, c, k, m, &chosen, err));
        }
    }
    return FSDPCK_OK;
}

/* Linear modules that the config targets only by a parameter. */
static fsdpck_status find_targeted(lora_set *set, const lora_config *config, fsdpck_error *err)
{
    for (size_t i = 0; config != NULL && i < set->modules.count; i++) {
        lora_module *m = VEC_AT(&set->modules, lora_module, i);
        const char *path = strtab_text(&set->names, m->path);
        const size_t n = strtab_nbytes(&set->names, m->path);
        candidates k = {.tensors = VEC_OF(uint32_t, set->names.owner)};
        bool is_module = false;
        if (m->kind != LORA_LINEAR || m->base_weight != LORA_NONE)
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

fsdpck_status lora_set_name_parameters(lora_set *set, const catalogue *c, const lora_config *config,
                                       fsdpck_error *err)
{
    RETURN_IF(find_targeted(set, config, err));
    for (size_t i = 0; i < set->modules.count; i++) {
        const lora_module *m = VEC_AT(&set->modules, const lora_module, i);
        const char *path = strtab_text(&set->names, m->path);
        const size_t n = strtab_nbytes(&set->names, m->path);
        if (m->kind != LORA_PARAMETER || m->parameter != LORA_NONE)
            continue;
        candidates k = {.tensors = VEC_OF(uint32_t, set->names.owner)};
        strtab_init(&k.leaves, set->names.owner);
        fsdpck_status st = add_of_base(&k, set, c, config, path, n, err);
        if (st == FSDPCK_OK && config != NULL && strtab_count(&k.leaves) == 0)
            st = add_of_config(&k, config, path, n, err);
        if (st == FSDPCK_OK)
            st = name_wrappers(set, c, &k, m, err);
        strtab_release(&k.leaves);
        vec_release(&k.tensors);
        RETURN_IF(st);
    }
    for (size_t i = 0; i < set->modules.count; i++)
        RETURN_IF(join_parameter(set, VEC_AT(&set->modules, lora_module, i), err));
    return FSDPCK_OK;
}
