/* lora_check_config.c: the config of an adapter against its tensors and the names of the base model. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "lora/lora_check.h"
#include "lora/lora_internal.h"

typedef struct config_check {
    const lora_set *set;
    uint32_t adapter;
    size_t own; /* as of lora_check_config */
    const lora_config *config;
    lora_lost *lost; /* or NULL */
    lora_found_fn found;
    void *ctx;
    bool has_magnitude, has_bias, has_tokens;
    strtab paths;     /* of modules of the adapter */
    strtab templates; /* the same, with '#' for numbers */
    strtab layers;    /* the same, to their last number */
    strtab stacks;    /* the same, before their first number */
    vec last;         /* uint32_t by template: the module with the largest numbers */
    /* Paths of modules of other adapters of the same model: these exist in memory, not only in a file. */
    strtab wrapped;
    strtab saved; /* names in the base model of tensors of the adapter that replace others */
    text_buf scratch;
} config_check;

#define REPORT(s, err, finding, ...)                              \
    do {                                                          \
        fsdpck_error fault_ = FSDPCK_ERROR_INIT;                  \
        (void)FAIL_WITH(&fault_, BADINPUT, finding, __VA_ARGS__); \
        RETURN_IF((s)->found((s)->ctx, &fault_, err));            \
    } while (0)

static fsdpck_status fail_config(const config_check *s, const char *member, const char *expected,
                                 const char *found, fsdpck_error *err)
{
    REPORT(s, err, LORA_CONFIG, ("'%s' of the adapter's config contradicts the tensors", member),
           (expected, "%s", expected), (found, "%s", found),
           (next, "give the config of this training with --adapter-config"));
    return FSDPCK_OK;
}

/* ---- which modules PEFT targets ---- */

/* As re.match(r".*?\.[^.]*\.(\d+)\.", path): the first number with two segments before it and one after it. */
static bool layer_of(const char *path, size_t nbytes, uint64_t *layer)
{
    size_t at = 0, begin, end;
    for (unsigned i = 0; lora_name_next(path, nbytes, &at, &begin, &end); i++) {
        uint64_t n = 0;
        size_t k = begin;
        for (; k < end && path[k] >= '0' && path[k] <= '9' && n < UINT64_MAX / 100; k++)
            n = n * 10 + (uint64_t)(path[k] - '0');
        if (i < 2 || end == begin || k < end || end == nbytes)
            continue;
        *layer = n;
        return true;
    }
    return false;
}

static bool layer_is_chosen(const lora_config *c, const char *path, size_t nbytes)
{
    uint64_t layer;
    /* A pattern of the user's own decides what a layer is. */
    if (c->layers.count == 0 || c->has_layers_pattern || c->target_modules.is_regex)
        return true;
    for (uint32_t i = 0; i < strtab_count(&c->target_modules.texts); i++)
        if (strtab_nbytes(&c->target_modules.texts, i) == nbytes &&
            memcmp(strtab_text(&c->target_modules.texts, i), path, nbytes) == 0)
            return true;
    if (!layer_of(path, nbytes, &layer))
        return false;
    for (size_t i = 0; i < c->layers.count; i++)
        if (*VEC_AT(&c->layers, const uint64_t, i) == layer)
            return true;
    return false;
}

/* The member by which the config does not target the module; NULL: it does. */
static fsdpck_status find_contradiction(const lora_config *c, const char *path, size_t nbytes,
                                        const char **member, fsdpck_error *err)
{
    bool matches = false;
    *member = NULL;
    RETURN_IF(lora_names_match(&c->exclude_modules, path, nbytes, &matches, err));
    if (matches) {
        *member = "exclude_modules";
        return FSDPCK_OK;
    }
    RETURN_IF(lora_names_match(&c->target_modules, path, nbytes, &matches, err));
    if (c->target_modules.is_set && !matches)
        *member = "target_modules";
    else if (!layer_is_chosen(c, path, nbytes))
        *member = "layers_to_transform";
    return FSDPCK_OK;
}

/* PEFT compares ends of texts, also inside a segment: "norm" names "input_layernorm" too. */
static bool is_saved_name(const lora_config *c, const char *path, size_t nbytes)
{
    const strtab *names = &c->modules_to_save.texts;
    for (uint32_t i = 0; i < strtab_count(names); i++) {
        const size_t n = strtab_nbytes(names, i);
        if (n > 0 && n <= nbytes && memcmp(path + nbytes - n, strtab_text(names, i), n) == 0)
            return true;
    }
    return false;
}

/* The bytes of the outermost module around `name`, itself too if `whole`, that modules_to_save names; 0: none. */
static size_t saved_around(const lora_config *c, const char *name, size_t nbytes, bool whole)
{
    size_t at = 0, begin, end;
    while (lora_name_next(name, nbytes, &at, &begin, &end))
        if ((end < nbytes || whole) && is_saved_name(c, name, end))
            return end;
    return 0;
}

bool lora_config_saves(const lora_config *config, const char *name, size_t nbytes)
{
    return saved_around(config, name, nbytes, false) > 0;
}

/* ---- each module ---- */

/* With ensure_weight_tying, PEFT adds an adapter to the module that is tied to a named one: both are outside of layers. */
static bool may_be_tied(const lora_config *c, const char *path, size_t nbytes, const char *member)
{
    uint64_t layer;
    return c->ties_tokens && !layer_of(path, nbytes, &layer) &&
           (strcmp(member, "target_modules") == 0 || strcmp(member, "modules_to_save") == 0);
}

static fsdpck_status check_module(config_check *s, const lora_module *m, fsdpck_error *err)
{
    const lora_config *c = s->config;
    const char *member = NULL;
    bool matches = true;
    if (m->kind == LORA_TOKENS || (m->kind == LORA_PARAMETER && m->parameter == LORA_NONE))
        return FSDPCK_OK;
    RETURN_IF(lora_module_key(s->set, m, &s->scratch, err));
    const char *key = s->scratch.text;
    const size_t nbytes = s->scratch.nbytes;
    if (m->kind == LORA_SAVED) {
        member = is_saved_name(c, key, nbytes) ? NULL : "modules_to_save";
    } else if (m->kind == LORA_PARAMETER) {
        RETURN_IF(lora_names_match(&c->target_parameters, key, nbytes, &matches, err));
        member = matches || !c->target_parameters.is_set ? NULL : "target_parameters";
    } else {
        RETURN_IF(find_contradiction(c, key, nbytes, &member, err));
    }
    if (member == NULL || may_be_tied(c, key, nbytes, member))
        return FSDPCK_OK;
    char expected[300];
    const bool excludes = strcmp(member, "exclude_modules") == 0;
    const bool layer = strcmp(member, "layers_to_transform") == 0;
    snprintf(expected, sizeof expected, "%s '%.200s', which has an adapter",
             excludes ? "no name that matches"
             : layer  ? "the layer of"
                      : "a name that matches",
             lora_text(s->set, m->path));
    return fail_config(s, member, expected, excludes ? "such a name" : "none", err);
}

/* ---- tensors that the config names and the adapter lacks ---- */

static bool is_base(const config_check *s, size_t i)
{
    const lora_tensor *t = lora_tensor_at(s->set, i);
    if (t->base == LORA_NONE || i < s->own)
        return false;
    return t->role == LORA_ROLE_BASE || t->role == LORA_ROLE_ORIGINAL ||
           (t->role == LORA_ROLE_SAVED && s->own > 0 && t->module == LORA_NONE);
}

/* Appends a path with '#' for its numbers. Returns the bytes of `path` to the end of the last number. */
static size_t append_template(const char *path, size_t nbytes, text_buf *out)
{
    size_t at = 0, begin, end, last = 0;
    while (lora_name_next(path, nbytes, &at, &begin, &end)) {
        bool number = end > begin;
        for (size_t k = begin; k < end; k++)
            number = number && path[k] >= '0' && path[k] <= '9';
        text_puts(out, begin > 0 ? "." : "");
        text_append(out, number ? "#" : path + begin, number ? 1 : end - begin);
        last = number ? end : last;
    }
    return last;
}

/* Whether the numbers of `a` come before those of `b`; both have one template. */
static bool comes_before(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] != '\0' && a[i] == b[i])
        i++;
    const size_t x = strcspn(a + i, "."), y = strcspn(b + i, ".");
    return x != y ? x < y : strcmp(a + i, b + i) < 0;
}

/* The first number of a path, as the layer of a stack of layers. */
typedef struct layer_number {
    size_t begin;      /* of the number in the path: what precedes it names the stack */
    uint64_t layer;    /* UINT64_MAX: larger than any */
    unsigned nnumbers; /* of the whole path; 0: in no stack */
} layer_number;

static layer_number first_number(const char *path, size_t nbytes)
{
    layer_number found = {0};
    size_t at = 0, begin, end;
    while (lora_name_next(path, nbytes, &at, &begin, &end)) {
        uint64_t n = 0;
        size_t k = begin;
        for (; k < end && path[k] >= '0' && path[k] <= '9'; k++)
            n = n < UINT64_MAX / 100 ? n * 10 + (uint64_t)(path[k] - '0') : UINT64_MAX;
        if (end == begin || k < end || found.nnumbers++ > 0)
            continue;
        found.begin = begin;
        found.layer = n;
    }
    return found;
}

/* Of another adapter. "all-linear" does not target embeddings and output projections. */
static fsdpck_status note_wrapped(config_check *s, const lora_module *m, fsdpck_error *err)
{
    const char *path = lora_text(s->set, m->path);
    const size_t nbytes = strtab_nbytes(&s->set->names, m->path);
    uint32_t id;
    if (s->own > 0 || (m->kind != LORA_LINEAR && m->kind != LORA_EMBEDDING) ||
        (s->config->target_modules.is_all &&
         (m->kind != LORA_LINEAR || lora_is_head(path, nbytes))))
        return FSDPCK_OK;
    return strtab_intern(&s->wrapped, path, nbytes, &id, err);
}

static fsdpck_status note_module(config_check *s, uint32_t index, fsdpck_error *err)
{
    const lora_module *m = lora_module_at(s->set, index);
    const char *path = lora_text(s->set, m->path);
    const size_t nbytes = strtab_nbytes(&s->set->names, m->path);
    const size_t known = strtab_count(&s->templates);
    uint32_t id;
    if (m->kind == LORA_SAVED || m->kind == LORA_TOKENS || m->kind == LORA_PARAMETER)
        return FSDPCK_OK;
    s->scratch.nbytes = 0;
    const size_t layer = append_template(path, nbytes, &s->scratch);
    RETURN_IF(text_check(&s->scratch, err));
    RETURN_IF(strtab_intern(&s->paths, path, nbytes, &id, err));
    const layer_number first = first_number(path, nbytes);
    if (first.nnumbers > 0)
        RETURN_IF(strtab_intern(&s->stacks, path, first.begin, &id, err));
    if (layer > 0)
        RETURN_IF(strtab_intern(&s->layers, path, layer, &id, err));
    RETURN_IF(strtab_intern(&s->templates, s->scratch.text, s->scratch.nbytes, &id, err));
    if (id == known)
        return vec_add(&s->last, &index, err);
    uint32_t *last = VEC_AT(&s->last, uint32_t, id);
    if (comes_before(lora_text(s->set, lora_module_at(s->set, *last)->path), path))
        *last = index;
    return FSDPCK_OK;
}

/* Whether other modules show that this one of the base model had an adapter: the same module of another layer has one, and
 * also a later layer or another module of its layer. Files of base models may have more layers than the model that
 * was trained. */
static fsdpck_status others_show(config_check *s, const char *path, size_t nbytes, bool *shown,
                                 fsdpck_error *err)
{
    *shown = false;
    if (s->config->layers.count > 0 && s->config->has_layers_pattern)
        return FSDPCK_OK;
    s->scratch.nbytes = 0;
    const size_t layer = append_template(path, nbytes, &s->scratch);
    RETURN_IF(text_check(&s->scratch, err));
    const uint32_t id = strtab_find(&s->templates, s->scratch.text, s->scratch.nbytes);
    if (id == STRTAB_NONE)
        return FSDPCK_OK;
    const lora_module *last = lora_module_at(s->set, *VEC_AT(&s->last, const uint32_t, id));
    *shown = strtab_find(&s->layers, path, layer) != STRTAB_NONE ||
             comes_before(path, lora_text(s->set, last->path));
    return FSDPCK_OK;
}

/* Whether a module of the base model is in a layer beside those of the adapter. Files of base models also have layers that
 * predict further tokens: after the others, or in a stack of their own. Modules of several numbers, as those of experts, may
 * be one parameter in the model, and "all-linear" does not tell which modules are linear: only those that the adapter has in
 * another place count. */
static fsdpck_status is_beside(config_check *s, const char *path, size_t nbytes, bool *beside,
                               fsdpck_error *err)
{
    const layer_number first = first_number(path, nbytes);
    *beside = false;
    if (s->lost == NULL || s->own == 0 || first.nnumbers == 0 ||
        (s->config->layers.count > 0 && s->config->has_layers_pattern) ||
        (s->lost->layers > 0 && first.layer >= s->lost->layers) ||
        strtab_find(&s->stacks, path, first.begin) == STRTAB_NONE)
        return FSDPCK_OK;
    s->scratch.nbytes = 0;
    (void)append_template(path, nbytes, &s->scratch);
    RETURN_IF(text_check(&s->scratch, err));
    *beside = (first.nnumbers == 1 && !s->config->target_modules.is_all) ||
              strtab_find(&s->templates, s->scratch.text, s->scratch.nbytes) != STRTAB_NONE;
    return FSDPCK_OK;
}

static void note_unproven(config_check *s, const char *name, size_t nbytes)
{
    if (s->lost->unproven++ == 0)
        s->lost->first = strtab_find(&s->set->names, name, nbytes);
}

/* Files of Gemma 3n have weights for keys and values of all layers, its model does not.
 * Source: transformers 5.23.0 (models/gemma3n: num_kv_shared_layers). */
static bool has_shared_values(const config_check *s, const char *path, size_t nbytes)
{
    const layer_number first = first_number(path, nbytes);
    return s->lost != NULL && s->lost->shared > 0 && s->lost->shared < s->lost->layers &&
           first.nnumbers > 0 && first.layer >= s->lost->layers - s->lost->shared &&
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

static fsdpck_status check_lost(config_check *s, const char *name, size_t nbytes, fsdpck_error *err)
{
    const lora_config *c = s->config;
    const char *member;
    bool lost;
    const size_t n = path_of_weight(name, nbytes, &lost);
    if (!c->target_modules.is_set || n == 0)
        return FSDPCK_OK;
    if (strtab_find(&s->paths, name, n) != STRTAB_NONE || saved_around(c, name, n, true) > 0 ||
        has_shared_values(s, name, n))
        return FSDPCK_OK;
    lost = lost || strtab_find(&s->wrapped, name, n) != STRTAB_NONE;
    if (!lost)
        RETURN_IF(others_show(s, name, n, &lost, err));
    bool beside = false;
    if (!lost)
        RETURN_IF(is_beside(s, name, n, &beside, err));
    if (!lost && !beside)
        return FSDPCK_OK;
    RETURN_IF(find_contradiction(c, name, n, &member, err));
    if (member != NULL)
        return FSDPCK_OK;
    if (!lost && s->lost->layers == 0) {
        note_unproven(s, name, nbytes);
        return FSDPCK_OK;
    }
    REPORT(
        s, err, LORA_PAIR,
        ("module '%.*s' has neither lora_A nor lora_B, but target_modules names it", (int)n, name),
        (tensor, name),
        (next, "save the adapter again; if the module was not trained, name it in "
               "exclude_modules of a file for --adapter-config"));
    return FSDPCK_OK;
}

static fsdpck_status check_saved(config_check *s, const char *name, size_t nbytes,
                                 fsdpck_error *err)
{
    const lora_config *c = s->config;
    const size_t n = c->ties_tokens ? 0 : saved_around(c, name, nbytes, false);
    if (n == 0 || strtab_find(&s->saved, name, nbytes) != STRTAB_NONE)
        return FSDPCK_OK;
    REPORT(s, err, LORA_PAIR,
           ("module '%.*s' of modules_to_save has no tensor '%s' in the adapter", (int)n, name,
            name + n + 1),
           (tensor, name),
           (next, "save the adapter again, or give the config of this training with "
                  "--adapter-config"));
    return FSDPCK_OK;
}

static fsdpck_status check_lacking(config_check *s, fsdpck_error *err)
{
    const strtab *names = &s->set->names;
    uint32_t id;
    for (uint32_t i = 0; i < lora_module_count(s->set); i++) {
        const lora_module *m = lora_module_at(s->set, i);
        RETURN_IF(m->adapter == s->adapter ? note_module(s, i, err) : note_wrapped(s, m, err));
    }
    for (size_t i = 0; i < lora_tensor_count(s->set); i++) {
        const lora_tensor *t = lora_tensor_at(s->set, i);
        const bool own =
            s->own > 0 ? i < s->own : t->adapter == s->adapter && t->role == LORA_ROLE_SAVED;
        if (own && t->base != LORA_NONE)
            RETURN_IF(strtab_intern(&s->saved, strtab_text(names, t->base),
                                    strtab_nbytes(names, t->base), &id, err));
    }
    for (size_t i = 0; i < lora_tensor_count(s->set); i++) {
        const lora_tensor *t = lora_tensor_at(s->set, i);
        if (!is_base(s, i))
            continue;
        RETURN_IF(check_lost(s, strtab_text(names, t->base), strtab_nbytes(names, t->base), err));
        RETURN_IF(check_saved(s, strtab_text(names, t->base), strtab_nbytes(names, t->base), err));
    }
    return FSDPCK_OK;
}

/* ---- members about all modules ---- */

static fsdpck_status check_flags(const config_check *s, fsdpck_error *err)
{
    const lora_config *c = s->config;
    if (c->use_dora != s->has_magnitude)
        RETURN_IF(fail_config(s, "use_dora",
                              s->has_magnitude ? "true: magnitude vectors exist"
                                               : "false: no magnitude vector exists",
                              c->use_dora ? "true" : "false", err));
    if (c->lora_bias != s->has_bias)
        RETURN_IF(fail_config(s, "lora_bias",
                              s->has_bias ? "true: lora_B has biases" : "false: lora_B has no bias",
                              c->lora_bias ? "true" : "false", err));
    if (c->has_tokens != s->has_tokens)
        RETURN_IF(fail_config(s, "trainable_token_indices",
                              s->has_tokens ? "the indices of the trained rows" : "null",
                              c->has_tokens ? "indices" : "null", err));
    return FSDPCK_OK;
}

static fsdpck_status check_all(config_check *s, fsdpck_error *err)
{
    for (size_t i = 0; i < lora_module_count(s->set); i++) {
        const lora_module *m = lora_module_at(s->set, i);
        if (m->adapter != s->adapter)
            continue;
        s->has_magnitude = s->has_magnitude || m->magnitude != LORA_NONE;
        s->has_bias = s->has_bias || m->b_bias != LORA_NONE;
        s->has_tokens = s->has_tokens || m->kind == LORA_TOKENS;
        RETURN_IF(check_module(s, m, err));
    }
    RETURN_IF(check_flags(s, err));
    return check_lacking(s, err);
}

fsdpck_status lora_check_config(const lora_set *set, uint32_t adapter, size_t own,
                                const lora_config *config, lora_lost *lost, lora_found_fn found,
                                void *ctx, fsdpck_error *err)
{
    budget *owner = set->names.owner;
    config_check s = {.set = set,
                      .adapter = adapter,
                      .own = own,
                      .config = config,
                      .lost = lost,
                      .found = found,
                      .ctx = ctx,
                      .last = VEC_OF(uint32_t, owner)};
    strtab *const tables[] = {&s.paths, &s.templates, &s.layers, &s.stacks, &s.wrapped, &s.saved};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        strtab_init(tables[i], owner);
    const fsdpck_status st = check_all(&s, err);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        strtab_release(tables[i]);
    vec_release(&s.last);
    text_release(&s.scratch);
    return st;
}
