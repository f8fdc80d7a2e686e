/* lora_targets.c: which modules PEFT targets or saves by the config of an adapter. */
#include <string.h>

#include "base/text.h"
#include "lora/lora_internal.h"

bool lora_layer_of(const char *path, size_t nbytes, uint64_t *layer)
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
    if (!lora_layer_of(path, nbytes, &layer))
        return false;
    for (size_t i = 0; i < c->layers.count; i++)
        if (*VEC_AT(&c->layers, const uint64_t, i) == layer)
            return true;
    return false;
}

fsdpck_status lora_find_contradiction(const lora_config *c, const char *path, size_t nbytes,
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

/* Names by which PEFT finds that embeddings are targets. Source: peft 0.21.2 (_check_tied_modules). */
static const char *const embeddings[] = {"embed_tokens", "lm_head"};

static bool has_embedding(const strtab *names)
{
    for (uint32_t i = 0; i < strtab_count(names); i++) {
        const char *name = strtab_text(names, i), *dot = strrchr(name, '.');
        const char *last = dot == NULL ? name : dot + 1;
        if (TEXT_IS_IN(last, strlen(last), embeddings))
            return true;
    }
    return false;
}

static fsdpck_status ties_at_load(const lora_config *c, bool *ties, fsdpck_error *err)
{
    *ties = c->target_modules.is_all || has_embedding(&c->modules_to_save.texts) ||
            (!c->target_modules.is_regex && has_embedding(&c->target_modules.texts));
    for (size_t i = 0; i < 2 && c->target_modules.is_regex && !*ties; i++)
        RETURN_IF(
            lora_names_match(&c->target_modules, embeddings[i], strlen(embeddings[i]), ties, err));
    return FSDPCK_OK;
}

fsdpck_status lora_is_dropped(const lora_set *set, const lora_module *m, const lora_config *c,
                              bool *dropped, fsdpck_error *err)
{
    text_buf key = {0};
    const char *member = NULL;
    uint64_t layer;
    *dropped = false;
    if (m->kind != LORA_LINEAR || !c->ties_tokens)
        return FSDPCK_OK;
    fsdpck_status st = lora_module_key(set, m, &key, err);
    if (st == FSDPCK_OK && !lora_layer_of(key.text, key.nbytes, &layer))
        st = lora_find_contradiction(c, key.text, key.nbytes, &member, err);
    text_release(&key);
    if (st != FSDPCK_OK || member == NULL || strcmp(member, "target_modules") != 0)
        return st;
    bool ties;
    RETURN_IF(ties_at_load(c, &ties, err));
    *dropped = !ties;
    return FSDPCK_OK;
}

bool lora_is_saved_name(const lora_config *c, const char *path, size_t nbytes)
{
    const strtab *names = &c->modules_to_save.texts;
    for (uint32_t i = 0; i < strtab_count(names); i++) {
        const size_t n = strtab_nbytes(names, i);
        if (n > 0 && n <= nbytes && memcmp(path + nbytes - n, strtab_text(names, i), n) == 0)
            return true;
    }
    return false;
}

size_t lora_saved_around(const lora_config *c, const char *name, size_t nbytes, bool whole)
{
    size_t at = 0, begin, end;
    while (lora_name_next(name, nbytes, &at, &begin, &end))
        if ((end < nbytes || whole) && lora_is_saved_name(c, name, end))
            return end;
    return 0;
}

bool lora_config_saves(const lora_config *config, const char *name, size_t nbytes)
{
    return lora_saved_around(config, name, nbytes, false) > 0;
}

static bool is_matched(const lora_set *set, const char *target, size_t nbytes)
{
    for (size_t i = 0; i < lora_module_count(set); i++) {
        const lora_module *m = lora_module_at(set, i);
        const char *path = lora_text(set, m->path);
        const size_t n = strtab_nbytes(&set->names, m->path);
        if (m->kind != LORA_SAVED && text_ends_with(path, n, target) &&
            (n == nbytes || path[n - nbytes - 1] == '.'))
            return true;
    }
    return false;
}

/* The next name of a list of target_modules at or after *at that no module with an adapter has; NULL: none. PEFT adds none to
 * the modules in one of modules_to_save, such as "classifier.dense", though "all-linear" names them. */
static const char *next_unmatched(const lora_set *set, const lora_config *config, uint32_t *at)
{
    const lora_names *names = &config->target_modules;
    while (names->is_set && !names->is_regex && !names->is_all &&
           *at < strtab_count(&names->texts)) {
        const uint32_t i = (*at)++;
        const size_t nbytes = strtab_nbytes(&names->texts, i);
        const char *name = strtab_text(&names->texts, i);
        /* With all-linear, PEFT lists modules before it excludes some. */
        bool excluded = false;
        if (lora_names_match(&config->exclude_modules, name, nbytes, &excluded, NULL) ==
                FSDPCK_OK &&
            excluded)
            continue;
        if (nbytes > 0 && !is_matched(set, name, nbytes) &&
            lora_saved_around(config, name, nbytes, true) == 0)
            return name;
    }
    return NULL;
}

const char *lora_unmatched_target(const lora_set *set, const lora_config *config, uint64_t *count)
{
    uint32_t at = 0;
    const char *first = next_unmatched(set, config, &at);
    *count = first != NULL;
    while (next_unmatched(set, config, &at) != NULL)
        ++*count;
    return first;
}

bool lora_has_unmatched_head(const lora_set *set, const lora_config *config)
{
    uint32_t at = 0;
    const char *target = next_unmatched(set, config, &at);
    while (target != NULL && !lora_is_head(target, strlen(target)))
        target = next_unmatched(set, config, &at);
    return target != NULL;
}

static bool is_saved(const lora_config *c, const strtab *saved, const char *module)
{
    for (uint32_t i = 0; i < strtab_count(saved); i++) {
        const char *name = strtab_text(saved, i);
        if (text_ends_with(name, lora_saved_around(c, name, strtab_nbytes(saved, i), false),
                           module))
            return true;
    }
    return false;
}

bool lora_has_unsaved_head(const lora_config *config, const strtab *saved)
{
    const strtab *names = &config->modules_to_save.texts;
    for (uint32_t i = 0; !config->ties_tokens && i < strtab_count(names); i++)
        if (lora_is_head(strtab_text(names, i), strtab_nbytes(names, i)) &&
            !is_saved(config, saved, strtab_text(names, i)))
            return true;
    return false;
}

static bool has_named(const catalogue *base, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; base != NULL && i < catalogue_tensor_count(base); i++) {
        const char *of = catalogue_name(base, catalogue_tensor(base, i)->name), *at = of;
        while ((at = strstr(at, name)) != NULL && at[n] != '.')
            at++;
        if (at != NULL)
            return true;
    }
    return false;
}

/* Whether the adapter or the base model has a module of this name of modules_to_save. */
static bool is_there(const lora_config *config, const strtab *saved, const catalogue *base,
                     const char *name)
{
    return is_saved(config, saved, name) || has_named(base, name);
}

/* PEFT adds both names for tasks of classification; a model has one of these modules. */
static bool is_other_there(const lora_config *config, const strtab *saved, const catalogue *base,
                           const char *name)
{
    static const char *const names[] = {"classifier", "score"};
    for (size_t i = 0; i < 2; i++)
        if (strcmp(name, names[i]) == 0)
            return is_there(config, saved, base, names[1 - i]);
    return false;
}

const char *lora_unsaved_name(const lora_set *set, const lora_config *config, const catalogue *base)
{
    const strtab *names = &config->modules_to_save.texts;
    const char *found = NULL;
    strtab saved;
    uint32_t id;
    strtab_init(&saved, set->names.owner);
    bool is_whole = !config->ties_tokens && set->has_prefix;
    for (size_t i = 0; is_whole && i < lora_tensor_count(set); i++) {
        const uint32_t name = lora_tensor_at(set, i)->base;
        if (name != LORA_NONE)
            is_whole = strtab_intern(&saved, strtab_text(&set->names, name),
                                     strtab_nbytes(&set->names, name), &id, NULL) == FSDPCK_OK;
    }
    for (uint32_t i = 0; is_whole && found == NULL && i < strtab_count(names); i++) {
        const char *name = strtab_text(names, i);
        if (!is_there(config, &saved, base, name) && !is_other_there(config, &saved, base, name) &&
            !(base != NULL && lora_is_head(name, strlen(name))))
            found = name;
    }
    strtab_release(&saved);
    return found;
}

/* "classifier.dense" and "classifier.out_proj" of RoBERTa and its kin, "classification_head.dense" of BART. */
static bool has_saved_below(const lora_set *set, const char *path, size_t nbytes, const char *layer)
{
    const size_t n = strlen(layer);
    for (size_t i = 0; i < lora_tensor_count(set); i++) {
        const char *name = lora_text(set, lora_tensor_at(set, i)->base);
        if (strncmp(name, path, nbytes) == 0 && strncmp(name + nbytes, layer, n) == 0)
            return true;
    }
    return false;
}

const char *lora_half_head(const lora_set *set, const lora_config *config, size_t *nbytes,
                           const char **lacks)
{
    static const char *const modules[] = {"classifier", "classification_head"};
    static const char *const layers[] = {".dense.weight", ".out_proj.weight"};
    static const char *const names[] = {"dense", "out_proj"};
    for (size_t i = 0; i < lora_tensor_count(set); i++) {
        const uint32_t base = lora_tensor_at(set, i)->base;
        const char *name = lora_text(set, base);
        const size_t n =
            base == LORA_NONE
                ? 0
                : lora_saved_around(config, name, strtab_nbytes(&set->names, base), false);
        size_t begin = n;
        while (begin > 0 && name[begin - 1] != '.')
            begin--;
        if (n == 0 || !TEXT_IS_IN(name + begin, n - begin, modules))
            continue;
        for (size_t k = 0; k < 2; k++) {
            const size_t other = strlen(layers[1 - k]) - strlen("weight");
            if (strncmp(name + n, layers[1 - k], other) != 0 ||
                has_saved_below(set, name, n, layers[k]))
                continue;
            *nbytes = n;
            *lacks = names[k];
            return name;
        }
    }
    return NULL;
}

bool lora_is_other_half(const strtab *stacks, const char *path, size_t nbytes)
{
    static const char *const halves[] = {"encoder.", "decoder."};
    for (size_t h = 0; h < 2; h++) {
        const size_t n = strlen(halves[h]);
        for (uint32_t i = 0; i < strtab_count(stacks); i++) {
            const char *stack = strtab_text(stacks, i), *at = strstr(stack, halves[h]);
            const size_t head = at == NULL ? 0 : (size_t)(at - stack);
            if (at != NULL && strtab_nbytes(stacks, i) == nbytes &&
                memcmp(path, stack, head) == 0 && memcmp(path + head, halves[1 - h], n) == 0 &&
                memcmp(path + head + n, at + n, nbytes - head - n) == 0)
                return true;
        }
    }
    return false;
}
