/* lora_check_config.c: the config of an adapter against its tensors. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "lora/lora_internal.h"

typedef struct config_check {
    const lora_config_check *of;
    bool has_magnitude, has_bias, has_tokens;
    text_buf scratch;
} config_check;

static fsdpck_status fail_config(const config_check *s, const char *member, const char *expected,
                                 const char *found, fsdpck_error *err)
{
    LORA_REPORT(s->of, err, LORA_CONFIG,
                ("'%s' of the adapter's config contradicts the tensors", member),
                (expected, "%s", expected), (found, "%s", found),
                (next, "give the config of this training with --adapter-config"));
    return FSDPCK_OK;
}

/* ---- each module ---- */

/* With ensure_weight_tying, PEFT adds an adapter to the module that is tied to a named one: both are outside of layers. */
static bool may_be_tied(const lora_config *c, const char *path, size_t nbytes, const char *member)
{
    uint64_t layer;
    return c->ties_tokens && !lora_layer_of(path, nbytes, &layer) &&
           (strcmp(member, "target_modules") == 0 || strcmp(member, "modules_to_save") == 0);
}

static fsdpck_status check_module(config_check *s, const lora_module *m, fsdpck_error *err)
{
    const lora_config *c = s->of->config;
    const char *member = NULL;
    bool matches = true;
    if (m->kind == LORA_TOKENS || (m->kind == LORA_PARAMETER && m->parameter == LORA_NONE))
        return FSDPCK_OK;
    RETURN_IF(lora_module_key(s->of->set, m, &s->scratch, err));
    const char *key = s->scratch.text;
    const size_t nbytes = s->scratch.nbytes;
    if (m->kind == LORA_SAVED) {
        member = lora_is_saved_name(c, key, nbytes) ? NULL : "modules_to_save";
    } else if (m->kind == LORA_PARAMETER) {
        RETURN_IF(lora_names_match(&c->target_parameters, key, nbytes, &matches, err));
        member = matches || !c->target_parameters.is_set ? NULL : "target_parameters";
    } else {
        RETURN_IF(lora_find_contradiction(c, key, nbytes, &member, err));
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
             lora_text(s->of->set, m->path));
    return fail_config(s, member, expected, excludes ? "such a name" : "none", err);
}

/* ---- members about all modules ---- */

static fsdpck_status check_flags(const config_check *s, fsdpck_error *err)
{
    const lora_config *c = s->of->config;
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

/* PEFT gives each linear layer and convolution one, except those of nn.MultiheadAttention. */
static bool takes_bias(const config_check *s, const lora_module *m)
{
    return m->adapter == s->of->adapter && (m->kind == LORA_LINEAR || m->kind == LORA_CONV) &&
           m->b != LORA_NONE && !m->is_attention && m->holder == LORA_NONE;
}

/* Without any, or with some where the config has none, the config is wrong: check_flags. */
static fsdpck_status check_factor_biases(const config_check *s, fsdpck_error *err)
{
    const lora_config *c = s->of->config;
    if (!s->has_bias || !c->lora_bias || c->is_made)
        return FSDPCK_OK;
    for (size_t i = 0; i < lora_module_count(s->of->set); i++) {
        const lora_module *m = lora_module_at(s->of->set, i);
        if (takes_bias(s, m) && m->b_bias == LORA_NONE)
            LORA_REPORT(s->of, err, LORA_PAIR,
                        ("module '%s' has lora_B without a bias, but its config has \"lora_bias\": "
                         "true",
                         lora_text(s->of->set, m->path)),
                        (tensor, lora_text(s->of->set, m->path)),
                        (expected, "a bias for each module, as other modules have one"),
                        (next, "check that the checkpoint is complete, and save the adapter "
                               "again"));
    }
    return FSDPCK_OK;
}

static bool has_tokens_of(const config_check *s, const char *name)
{
    for (size_t i = 0; i < lora_module_count(s->of->set); i++) {
        const lora_module *m = lora_module_at(s->of->set, i);
        const char *path = lora_text(s->of->set, m->path);
        if (m->adapter == s->of->adapter && m->kind == LORA_TOKENS &&
            text_ends_with(path, strlen(path), name))
            return true;
    }
    return false;
}

/* PEFT omits the rows of an output projection that is tied, if another module has the same ones. */
static fsdpck_status may_share_rows(const config_check *s, uint32_t head, bool *may,
                                    fsdpck_error *err)
{
    const strtab *names = &s->of->config->token_names;
    vec own = VEC_OF(uint64_t, s->of->config->owner), other = own;
    fsdpck_status st = lora_token_rows(s->of->config, strtab_text(names, head),
                                       strtab_nbytes(names, head), &own, err);
    *may = false;
    for (uint32_t i = 0; st == FSDPCK_OK && !*may && i < strtab_count(names); i++) {
        other.count = 0;
        if (i != head)
            st = lora_token_rows(s->of->config, strtab_text(names, i), strtab_nbytes(names, i),
                                 &other, err);
        *may =
            st == FSDPCK_OK && i != head && own.count == other.count &&
            (own.count == 0 || memcmp(own.items, other.items, own.count * sizeof(uint64_t)) == 0);
    }
    vec_release(&own);
    vec_release(&other);
    return st;
}

static fsdpck_status check_tokens(const config_check *s, fsdpck_error *err)
{
    const strtab *names = &s->of->config->token_names;
    for (uint32_t i = 0; s->has_tokens && i < strtab_count(names); i++) {
        const char *name = strtab_text(names, i);
        bool is_shared = false;
        if (has_tokens_of(s, name))
            continue;
        if (lora_is_head(name, strtab_nbytes(names, i)))
            RETURN_IF(may_share_rows(s, i, &is_shared, err));
        if (!is_shared)
            LORA_REPORT(
                s->of, err, LORA_PAIR,
                ("trainable_token_indices names '%s', for which the adapter has no rows", name),
                (tensor, name),
                (next, "save the adapter again, or give the config of this training with "
                       "--adapter-config"));
    }
    return FSDPCK_OK;
}

static fsdpck_status check_all(config_check *s, fsdpck_error *err)
{
    for (size_t i = 0; i < lora_module_count(s->of->set); i++) {
        const lora_module *m = lora_module_at(s->of->set, i);
        if (m->adapter != s->of->adapter)
            continue;
        s->has_magnitude = s->has_magnitude || m->magnitude != LORA_NONE;
        s->has_bias = s->has_bias || m->b_bias != LORA_NONE;
        s->has_tokens = s->has_tokens || m->kind == LORA_TOKENS;
        RETURN_IF(check_module(s, m, err));
    }
    RETURN_IF(check_flags(s, err));
    RETURN_IF(check_factor_biases(s, err));
    RETURN_IF(check_tokens(s, err));
    return lora_check_lacking(s->of, err);
}

fsdpck_status lora_check_config(const lora_set *set, uint32_t adapter, size_t own,
                                const lora_config *config, lora_lost *lost, lora_found_fn found,
                                void *ctx, fsdpck_error *err)
{
    const lora_config_check of = {.set = set,
                                  .adapter = adapter,
                                  .own = own,
                                  .config = config,
                                  .lost = lost,
                                  .found = found,
                                  .ctx = ctx};
    config_check s = {.of = &of};
    const fsdpck_status st = check_all(&s, err);
    text_release(&s.scratch);
    return st;
}
