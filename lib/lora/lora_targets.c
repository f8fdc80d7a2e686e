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

const char *lora_unmatched_target(const lora_set *set, const lora_config *config, uint64_t *count)
{
    const lora_names *names = &config->target_modules;
    const char *first = NULL;
    *count = 0;
    for (uint32_t i = 0; names->is_set && !names->is_regex && !names->is_all &&
                         i < strtab_count(&names->texts);
         i++) {
        const char *target = strtab_text(&names->texts, i);
        if (strtab_nbytes(&names->texts, i) == 0 ||
            is_matched(set, target, strtab_nbytes(&names->texts, i)))
            continue;
        first = first == NULL ? target : first;
        ++*count;
    }
    return first;
}
