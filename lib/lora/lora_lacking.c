/* lora_lacking.c: modules, parameters and saved tensors of the base model that the config of an adapter names and the adapter
 * lacks. */
#include <string.h>

#include "base/text.h"
#include "lora/lora_internal.h"

/* Places are paths of modules, and names of parameters of target_parameters. */
typedef struct lacking {
    const lora_config_check *of;
    const lora_config *config;
    strtab places;    /* of the adapter */
    strtab unnamed;   /* modules with an adapter of an unknown parameter */
    strtab templates; /* the places, with '#' for numbers */
    strtab layers;    /* the same, to their last number */
    strtab stacks;    /* the same, before their first number */
    vec last;         /* uint32_t by template: the module with the largest numbers */
    /* Places of other adapters of the same model: these exist in memory, not only in a file. */
    strtab wrapped;
    strtab saved;    /* names in the base model of tensors of the adapter that replace others */
    strtab compared; /* parameters that the base model has under other names */
    text_buf scratch, key;
} lacking;

static bool is_base(const lacking *s, size_t i)
{
    const lora_tensor *t = lora_tensor_at(s->of->set, i);
    if (t->base == LORA_NONE || i < s->of->own)
        return false;
    return t->role == LORA_ROLE_BASE || t->role == LORA_ROLE_ORIGINAL ||
           (t->role == LORA_ROLE_SAVED && s->of->own > 0 && t->module == LORA_NONE);
}

/* Of another adapter. "all-linear" does not target embeddings and output projections. */
static fsdpck_status note_wrapped(lacking *s, const lora_module *m, fsdpck_error *err)
{
    const char *path = lora_text(s->of->set, m->path);
    const size_t nbytes = strtab_nbytes(&s->of->set->names, m->path);
    const bool is_parameter = m->kind == LORA_PARAMETER && m->parameter != LORA_NONE;
    uint32_t id;
    if (s->of->own > 0 || (m->kind != LORA_LINEAR && m->kind != LORA_EMBEDDING && !is_parameter) ||
        (s->config->target_modules.is_all && !is_parameter &&
         (m->kind != LORA_LINEAR || lora_is_head(path, nbytes))))
        return FSDPCK_OK;
    if (!is_parameter)
        return strtab_intern(&s->wrapped, path, nbytes, &id, err);
    RETURN_IF(lora_module_key(s->of->set, m, &s->key, err));
    return strtab_intern(&s->wrapped, s->key.text, s->key.nbytes, &id, err);
}

/* The place of a module: *template_nbytes is 0 if its parameter is unknown. */
static fsdpck_status note_place(lacking *s, const lora_module *m, size_t *template_nbytes,
                                fsdpck_error *err)
{
    uint32_t id;
    const bool is_unnamed = m->kind == LORA_PARAMETER && m->parameter == LORA_NONE;
    if (m->kind == LORA_PARAMETER) {
        RETURN_IF(lora_module_key(s->of->set, m, &s->key, err));
    } else {
        s->key.nbytes = 0;
        text_append(&s->key, lora_text(s->of->set, m->path),
                    strtab_nbytes(&s->of->set->names, m->path));
        RETURN_IF(text_check(&s->key, err));
    }
    const char *path = s->key.text;
    const size_t nbytes = s->key.nbytes;
    s->scratch.nbytes = 0;
    const size_t layer = lora_append_template(path, nbytes, &s->scratch);
    RETURN_IF(text_check(&s->scratch, err));
    RETURN_IF(strtab_intern(is_unnamed ? &s->unnamed : &s->places, path, nbytes, &id, err));
    const lora_layer_number first = lora_first_number(path, nbytes);
    if (first.nnumbers > 0)
        RETURN_IF(strtab_intern(&s->stacks, path, first.begin, &id, err));
    if (layer > 0)
        RETURN_IF(strtab_intern(&s->layers, path, layer, &id, err));
    *template_nbytes = is_unnamed ? 0 : s->scratch.nbytes;
    return FSDPCK_OK;
}

static fsdpck_status note_module(lacking *s, uint32_t index, fsdpck_error *err)
{
    const lora_module *m = lora_module_at(s->of->set, index);
    const size_t known = strtab_count(&s->templates);
    size_t nbytes;
    uint32_t id;
    if (m->kind == LORA_SAVED || m->kind == LORA_TOKENS)
        return FSDPCK_OK;
    RETURN_IF(note_place(s, m, &nbytes, err));
    if (nbytes == 0)
        return FSDPCK_OK;
    RETURN_IF(strtab_intern(&s->templates, s->scratch.text, nbytes, &id, err));
    if (id == known)
        return vec_add(&s->last, &index, err);
    uint32_t *last = VEC_AT(&s->last, uint32_t, id);
    if (lora_comes_before(lora_text(s->of->set, lora_module_at(s->of->set, *last)->path),
                     lora_text(s->of->set, m->path)))
        *last = index;
    return FSDPCK_OK;
}

/* Whether others show that this place of the base model had an adapter: the same place of another layer has one, and also a
 * later layer or another place of its layer. Files of base models may have more layers than the model that was trained. */
static fsdpck_status others_show(lacking *s, const char *path, size_t nbytes, bool *shown,
                                 fsdpck_error *err)
{
    *shown = false;
    s->scratch.nbytes = 0;
    const size_t layer = lora_append_template(path, nbytes, &s->scratch);
    RETURN_IF(text_check(&s->scratch, err));
    const uint32_t id = strtab_find(&s->templates, s->scratch.text, s->scratch.nbytes);
    if (id == STRTAB_NONE)
        return FSDPCK_OK;
    const lora_module *last = lora_module_at(s->of->set, *VEC_AT(&s->last, const uint32_t, id));
    *shown = strtab_find(&s->layers, path, layer) != STRTAB_NONE ||
             lora_comes_before(path, lora_text(s->of->set, last->path));
    return FSDPCK_OK;
}

static void note_unproven(lacking *s, const char *name, size_t nbytes)
{
    if (s->of->lost->unproven++ == 0)
        s->of->lost->first = strtab_find(&s->of->set->names, name, nbytes);
}

/* Files of Gemma 3n have weights for keys and values of all layers, its model does not.
 * Source: transformers 5.23.0 (models/gemma3n: num_kv_shared_layers). */
static bool has_shared_values(const lacking *s, const char *path, size_t nbytes)
{
    const lora_layer_number first = lora_first_number(path, nbytes);
    return s->of->lost != NULL && s->of->lost->shared > 0 &&
           s->of->lost->shared < s->of->lost->layers && first.nnumbers > 0 &&
           first.layer >= s->of->lost->layers - s->of->lost->shared &&
           strstr(path, "tower") == NULL &&
           (text_ends_with(path, nbytes, ".k_proj") || text_ends_with(path, nbytes, ".v_proj"));
}

/* The bytes of the path of a module whose weight has this name, also of nn.MultiheadAttention; 0: it is none. A wrapper
 * without an adapter has kept its segment: then *lost. */
static size_t path_of_weight(const char *name, size_t nbytes, bool *lost)
{
    static const char *const ends[] = {".base_layer.weight", ".base_layer.in_proj_weight",
                                       ".weight", ".in_proj_weight"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        *lost = i < 2;
        if (text_ends_with(name, nbytes, ends[i]))
            return nbytes - strlen(ends[i]);
    }
    return 0;
}

/* Whether the adapter lost a place of the base model, or may have. */
typedef enum loss { LOSS_NONE, LOSS_UNPROVEN, LOSS_CERTAIN } loss;

/* A module of the base model, or a parameter of one. */
typedef struct base_place {
    const char *path;
    size_t nbytes, module_nbytes;
    bool is_exact; /* the config names it, unlike "all-linear" */
} base_place;

/* Of a place in a layer beside those of the adapter. Files of base models also have layers that predict further tokens: after
 * the others, or in a stack of their own. Places of several numbers, as those of experts, may be one parameter in the model,
 * and "all-linear" does not tell which modules are linear: only those that the adapter has in another place count. */
static fsdpck_status find_beside(lacking *s, const base_place *p, loss *found, fsdpck_error *err)
{
    const lora_layer_number first = lora_first_number(p->path, p->nbytes);
    *found = LOSS_NONE;
    if (s->of->lost == NULL || s->of->own == 0)
        return FSDPCK_OK;
    const uint64_t layers = s->of->lost->layers;
    const bool has_stack = strtab_find(&s->stacks, p->path, first.begin) != STRTAB_NONE;
    if (first.nnumbers == 0) {
        *found =
            p->is_exact && lora_is_outside(&s->stacks, p->path, p->module_nbytes) ? LOSS_UNPROVEN : LOSS_NONE;
        return FSDPCK_OK;
    }
    if ((layers > 0 && first.layer >= layers) || (!has_stack && strtab_count(&s->stacks) > 0)) {
        *found = p->is_exact && lora_is_other_half(&s->stacks, p->path, first.begin)
                     ? LOSS_UNPROVEN
                     : LOSS_NONE;
        return FSDPCK_OK;
    }
    s->scratch.nbytes = 0;
    (void)lora_append_template(p->path, p->nbytes, &s->scratch);
    RETURN_IF(text_check(&s->scratch, err));
    const bool is_known =
        strtab_find(&s->templates, s->scratch.text, s->scratch.nbytes) != STRTAB_NONE;
    if ((first.nnumbers == 1 && p->is_exact) || is_known)
        *found = layers > 0 && has_stack ? LOSS_CERTAIN : LOSS_UNPROVEN;
    else if (p->is_exact && strstr(p->path, "expert") == NULL)
        *found = LOSS_UNPROVEN;
    return FSDPCK_OK;
}

static fsdpck_status find_loss(lacking *s, const base_place *p, loss *found, fsdpck_error *err)
{
    bool lost = strtab_find(&s->wrapped, p->path, p->nbytes) != STRTAB_NONE;
    if (!lost)
        RETURN_IF(others_show(s, p->path, p->nbytes, &lost, err));
    *found = LOSS_CERTAIN;
    return lost ? FSDPCK_OK : find_beside(s, p, found, err);
}

static fsdpck_status check_module(lacking *s, const char *name, size_t nbytes, fsdpck_error *err)
{
    const lora_config *c = s->config;
    const char *member;
    bool lost;
    loss found = LOSS_NONE;
    const size_t n = path_of_weight(name, nbytes, &lost);
    const base_place module = {name, n, n, !c->target_modules.is_all};
    if (!c->target_modules.is_set || n == 0)
        return FSDPCK_OK;
    if (strtab_find(&s->places, name, n) != STRTAB_NONE ||
        lora_saved_around(c, name, n, true) > 0 || has_shared_values(s, name, n))
        return FSDPCK_OK;
    /* A pattern of the user's own decides what a layer is. */
    if (lost || strtab_find(&s->wrapped, name, n) != STRTAB_NONE)
        found = LOSS_CERTAIN;
    else if (c->layers.count == 0 || !c->has_layers_pattern)
        RETURN_IF(find_loss(s, &module, &found, err));
    if (found == LOSS_NONE)
        return FSDPCK_OK;
    RETURN_IF(lora_find_contradiction(c, name, n, &member, err));
    if (member != NULL)
        return FSDPCK_OK;
    if (found == LOSS_UNPROVEN) {
        note_unproven(s, name, nbytes);
        return FSDPCK_OK;
    }
    LORA_REPORT(
        s->of, err, LORA_PAIR,
        ("module '%.*s' has neither lora_A nor lora_B, but target_modules names it", (int)n, name),
        (tensor, name),
        (next, "save the adapter again; if the module was not trained, name it in "
               "exclude_modules of a file for --adapter-config"));
    return FSDPCK_OK;
}

/* ---- target_parameters, to which neither layers_to_transform nor exclude_modules apply ---- */

/* `place` is the name of a parameter, `name` that of a tensor which shows that the base model has it. */
static fsdpck_status check_place(lacking *s, const char *place, size_t nbytes, const char *name,
                                 bool lost, fsdpck_error *err)
{
    loss found = LOSS_CERTAIN;
    size_t n = nbytes;
    while (n > 0 && place[n - 1] != '.')
        n--;
    n -= n > 0;
    if (strtab_find(&s->places, place, nbytes) != STRTAB_NONE ||
        strtab_find(&s->places, place, n) != STRTAB_NONE ||
        strtab_find(&s->unnamed, place, n) != STRTAB_NONE ||
        lora_saved_around(s->config, place, n, true) > 0 || has_shared_values(s, place, n))
        return FSDPCK_OK;
    if (!lost)
        RETURN_IF(find_loss(s, &(base_place){place, nbytes, n, true}, &found, err));
    if (found == LOSS_UNPROVEN)
        note_unproven(s, name, strlen(name));
    if (found != LOSS_CERTAIN)
        return FSDPCK_OK;
    LORA_REPORT(s->of, err, LORA_PAIR,
                ("parameter '%.*s' has neither lora_A nor lora_B, but target_parameters names it",
                 (int)nbytes, place),
                (tensor, name),
                (next, "save the adapter again; if the parameter was not trained, give a file "
                       "without it in target_parameters with --adapter-config"));
    return FSDPCK_OK;
}

static fsdpck_status check_parameter(lacking *s, const char *name, size_t nbytes, fsdpck_error *err)
{
    static const char wrapper[] = ".base_layer";
    size_t leaf = nbytes;
    bool matches = false, lost = false;
    while (leaf > 0 && name[leaf - 1] != '.')
        leaf--;
    if (leaf == 0)
        return FSDPCK_OK;
    size_t n = leaf - 1;
    for (; text_ends_with(name, n, wrapper); lost = true)
        n -= sizeof wrapper - 1;
    s->key.nbytes = 0;
    text_append(&s->key, name, n);
    text_append(&s->key, name + leaf - 1, nbytes - leaf + 1);
    RETURN_IF(text_check(&s->key, err));
    RETURN_IF(
        lora_names_match(&s->config->target_parameters, s->key.text, s->key.nbytes, &matches, err));
    return matches ? check_place(s, s->key.text, s->key.nbytes, name, lost, err) : FSDPCK_OK;
}

/* Whether a parameter with this target is in the module `path`, which is a list in a file. A target without module: of
 * experts. */
static bool is_of_list(const char *path, size_t nbytes, const char *module, size_t module_nbytes)
{
    static const char experts[] = "experts";
    const char *end = module_nbytes > 0 ? module : experts;
    const size_t n = module_nbytes > 0 ? module_nbytes : sizeof experts - 1;
    return n <= nbytes && memcmp(path + nbytes - n, end, n) == 0 &&
           (n == nbytes || path[nbytes - n - 1] == '.');
}

/* Files of Mixtral and its kin have another name for the module around the experts than the model.
 * Source: transformers 5.23.0 (conversion_mapping.py). */
static void append_renamed(text_buf *out, const char *name, size_t nbytes)
{
    static const char file[] = ".block_sparse_moe.", model[] = ".mlp.";
    const char *at = strstr(name, file);
    const size_t head = at == NULL ? nbytes : (size_t)(at - name), n = sizeof file - 1;
    if (at == NULL || head + n > nbytes) {
        text_append(out, name, nbytes);
        return;
    }
    text_append(out, name, head);
    text_puts(out, model);
    text_append(out, at + n, nbytes - head - n);
}

/* The parameter of a target for the list at the first `begin` bytes of a name; a number follows. */
static fsdpck_status check_listed(lacking *s, const char *name, size_t begin, uint32_t target,
                                  fsdpck_error *err)
{
    const strtab *targets = &s->config->target_parameters.texts;
    const char *text = strtab_text(targets, target);
    const size_t n = strtab_nbytes(targets, target), known = strtab_count(&s->compared);
    size_t leaf = n;
    uint32_t id;
    while (leaf > 0 && text[leaf - 1] != '.')
        leaf--;
    s->key.nbytes = 0;
    append_renamed(&s->key, name, begin);
    RETURN_IF(text_check(&s->key, err));
    if (begin == 0 || leaf == n ||
        !is_of_list(s->key.text, s->key.nbytes - 1, text, leaf > 0 ? leaf - 1 : 0))
        return FSDPCK_OK;
    text_append(&s->key, text + leaf, n - leaf);
    RETURN_IF(text_check(&s->key, err));
    RETURN_IF(strtab_intern(&s->compared, s->key.text, s->key.nbytes, &id, err));
    if (id < known || lora_set_find_base(s->of->set, s->key.text, s->key.nbytes) != LORA_NONE)
        return FSDPCK_OK;
    return check_place(s, s->key.text, s->key.nbytes, name, false, err);
}

/* Files may have a list of experts, "mlp.experts.0.up_proj.weight", where the model has one parameter of all. */
static fsdpck_status check_lists(lacking *s, const char *name, size_t nbytes, fsdpck_error *err)
{
    size_t at = 0, begin, end;
    while (s->of->own > 0 && lora_name_next(name, nbytes, &at, &begin, &end)) {
        bool number = end > begin && end < nbytes;
        for (size_t k = begin; k < end; k++)
            number = number && name[k] >= '0' && name[k] <= '9';
        for (uint32_t i = 0; number && i < strtab_count(&s->config->target_parameters.texts); i++)
            RETURN_IF(check_listed(s, name, begin, i, err));
    }
    return FSDPCK_OK;
}

/* ---- all tensors ---- */

static fsdpck_status check_saved(lacking *s, const char *name, size_t nbytes, fsdpck_error *err)
{
    const lora_config *c = s->config;
    const size_t n = c->ties_tokens ? 0 : lora_saved_around(c, name, nbytes, false);
    if (n == 0 || strtab_find(&s->saved, name, nbytes) != STRTAB_NONE)
        return FSDPCK_OK;
    LORA_REPORT(s->of, err, LORA_PAIR,
                ("module '%.*s' of modules_to_save has no tensor '%s' in the adapter", (int)n, name,
                 name + n + 1),
                (tensor, name),
                (next, "save the adapter again, or give the config of this training with "
                       "--adapter-config"));
    return FSDPCK_OK;
}

/* What the adapter has. */
static fsdpck_status note_all(lacking *s, fsdpck_error *err)
{
    const lora_set *set = s->of->set;
    const size_t own = s->of->own;
    uint32_t id;
    for (uint32_t i = 0; i < lora_module_count(set); i++) {
        const lora_module *m = lora_module_at(set, i);
        RETURN_IF(m->adapter == s->of->adapter ? note_module(s, i, err) : note_wrapped(s, m, err));
    }
    for (size_t i = 0; i < lora_tensor_count(set); i++) {
        const lora_tensor *t = lora_tensor_at(set, i);
        const bool is_own =
            own > 0 ? i < own : t->adapter == s->of->adapter && t->role == LORA_ROLE_SAVED;
        if (is_own && t->base != LORA_NONE)
            RETURN_IF(strtab_intern(&s->saved, strtab_text(&set->names, t->base),
                                    strtab_nbytes(&set->names, t->base), &id, err));
    }
    return FSDPCK_OK;
}

/* Files of a base model lack an output projection that is tied to the embedding. */
static void note_lost_head(const lacking *s)
{
    if (s->of->lost != NULL && s->of->own > 0 && s->of->lost->unproven == 0)
        s->of->lost->unproven += lora_has_unmatched_head(s->of->set, s->config) ||
                                 lora_has_unsaved_head(s->config, &s->saved);
}

static fsdpck_status check_all(lacking *s, fsdpck_error *err)
{
    const lora_set *set = s->of->set;
    RETURN_IF(note_all(s, err));
    for (size_t i = 0; i < lora_tensor_count(set); i++) {
        const lora_tensor *t = lora_tensor_at(set, i);
        if (!is_base(s, i))
            continue;
        const char *name = strtab_text(&set->names, t->base);
        const size_t nbytes = strtab_nbytes(&set->names, t->base);
        RETURN_IF(check_module(s, name, nbytes, err));
        RETURN_IF(check_parameter(s, name, nbytes, err));
        RETURN_IF(check_lists(s, name, nbytes, err));
        RETURN_IF(check_saved(s, name, nbytes, err));
    }
    note_lost_head(s);
    return lora_check_biases(s->of, &s->saved, &s->stacks, err);
}

fsdpck_status lora_check_lacking(const lora_config_check *check, fsdpck_error *err)
{
    budget *owner = check->set->names.owner;
    lacking s = {.of = check, .config = check->config, .last = VEC_OF(uint32_t, owner)};
    strtab *const tables[] = {&s.places, &s.unnamed, &s.templates, &s.layers,
                              &s.stacks, &s.wrapped, &s.saved,     &s.compared};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        strtab_init(tables[i], owner);
    const fsdpck_status st = check_all(&s, err);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        strtab_release(tables[i]);
    vec_release(&s.last);
    text_release(&s.scratch);
    text_release(&s.key);
    return st;
}
