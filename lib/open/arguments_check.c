#include "open/arguments_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "open/config_settings.h"
#include "open/training_arguments.h"

typedef enum use { ALWAYS, OF_MLA, OF_SCALING } use;

/* Names of one setting; `use`: the argument counts only with multi_latent_attention or use_rope_scaling. */
static const struct {
    const char *argument, *key;
    use use;
} pairs[] = {
    {"rotary_base", "rope_theta", ALWAYS},
    {"norm_epsilon", "rms_norm_eps", ALWAYS},
    {"layernorm_epsilon", "rms_norm_eps", ALWAYS},
    {"rope_scaling_factor", "factor", OF_SCALING},
    {"rotary_scaling_factor", "factor", OF_MLA},
    {"mscale", "mscale", OF_MLA},
    {"mscale_all_dim", "mscale_all_dim", OF_MLA},
    {"moe_router_topk", "num_experts_per_tok", ALWAYS},
    {"moe_router_topk_scaling_factor", "routed_scaling_factor", ALWAYS},
    {"moe_router_score_function", "scoring_func", ALWAYS},
    {"moe_router_num_groups", "n_group", ALWAYS},
    {"moe_router_group_topk", "topk_group", ALWAYS},
};

typedef struct comparison {
    const model_config *config;
    config_settings settings;
    text_buf differences; /* "'rope_theta' is 500000, but 'rotary_base' 10000" */
    uint64_t count;
} comparison;

/* --- arguments of the training --- */

static bool is_true(const value_pool *pool, value arguments, const char *name)
{
    value v;
    int64_t i;
    return value_dict_find(pool, arguments, name, &v) && value_as_i64(pool, v, &i) && i != 0;
}

static bool is_false(const value_pool *pool, value arguments, const char *name)
{
    value v;
    int64_t i;
    return value_dict_find(pool, arguments, name, &v) && value_as_i64(pool, v, &i) && i == 0;
}

static void put(comparison *c, const char *key, const char *in_config, const char *argument,
                const char *in_arguments)
{
    text_printf(&c->differences, "%s'%s' is %s, but '%s' %s", c->count++ > 0 ? "; " : "", key,
                in_config, argument, in_arguments);
}

/* Whether v has another value; *text: it. */
static bool differs(const value_pool *pool, value v, const config_setting *s, char text[48])
{
    double d;
    size_t nbytes;
    if (value_kind_of(v) == VALUE_STR && s->kind == JSON_STRING) {
        const char *raw = value_text(pool, v, &nbytes);
        escape_text(text, 48, raw, nbytes);
        return !text_is(raw, nbytes, s->text);
    }
    if ((value_kind_of(v) != VALUE_INT && value_kind_of(v) != VALUE_FLOAT) ||
        s->kind != JSON_NUMBER || !value_as_double(pool, v, &d))
        return false;
    snprintf(text, 48, "%.15g", d);
    return d != s->number;
}

static void compare_pairs(comparison *c, const value_pool *pool, value arguments)
{
    const bool is_mla = is_true(pool, arguments, "multi_latent_attention"),
               is_scaled = is_true(pool, arguments, "use_rope_scaling");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char text[48];
        value v;
        const config_setting *s = config_settings_find(&c->settings, pairs[i].key);
        if ((pairs[i].use == OF_MLA && !is_mla) || (pairs[i].use == OF_SCALING && !is_scaled) ||
            !value_dict_find(pool, arguments, pairs[i].argument, &v) || !differs(pool, v, s, text))
            continue;
        put(c, pairs[i].key, s->text, pairs[i].argument, text);
    }
}

/* Llama 3.1's scaling of RoPE, and ties. */
static void compare_switches(comparison *c, const value_pool *pool, value arguments)
{
    static const char scaling[] = "use_rope_scaling",
                      untie[] = "untie_embeddings_and_output_weights";
    const config_setting *rope = config_settings_find(&c->settings, "rope_type");
    const bool is_llama3 = rope->kind == JSON_STRING && strcmp(rope->text, "llama3") == 0;
    if (is_llama3 ? is_false(pool, arguments, scaling)
                  : rope->kind == JSON_STRING && is_true(pool, arguments, scaling))
        put(c, "rope_type", rope->text, scaling, is_llama3 ? "false" : "true");
    if (c->config->ties == MODEL_TIES_YES
            ? is_true(pool, arguments, untie)
            : c->config->ties == MODEL_TIES_NO && is_false(pool, arguments, untie))
        put(c, "tie_word_embeddings", c->config->ties == MODEL_TIES_YES ? "true" : "false", untie,
            c->config->ties == MODEL_TIES_YES ? "true" : "false");
}

static void compare(void *ctx, const value_pool *pool, value arguments)
{
    compare_pairs(ctx, pool, arguments);
    compare_switches(ctx, pool, arguments);
}

/* --- params.json --- */

static void compare_number(comparison *c, const char *key, const char *param, double number)
{
    const config_setting *s = config_settings_find(&c->settings, key);
    char text[48];
    if (number == 0 || s->kind != JSON_NUMBER || s->number == number)
        return;
    snprintf(text, sizeof text, "%.15g", number);
    put(c, key, s->text, param, text);
}

static void compare_params(comparison *c, const meta_params *p)
{
    const config_setting *rope = config_settings_find(&c->settings, "rope_type");
    const bool is_llama3 = rope->kind == JSON_STRING && strcmp(rope->text, "llama3") == 0;
    compare_number(c, "rope_theta", "rope_theta", p->rope_theta);
    compare_number(c, "rms_norm_eps", "norm_eps", p->norm_eps);
    if (rope->kind == JSON_STRING && p->scaled_rope == (is_llama3 ? JSON_FALSE : JSON_TRUE))
        put(c, "rope_type", rope->text, "use_scaled_rope", is_llama3 ? "false" : "true");
}

/* --- both --- */

/* Warns, and begins a comparison with other settings. */
static void report(comparison *c, fsdpck_checkpoint *of, const char *with)
{
    if (c->count > 0)
        log_warn(&of->ctx->log, FSDPCK_FINDING_MAP_ARGUMENTS,
                 "give the config.json of this model, or correct these members in config.json of "
                 "the output: loaders compute with them",
                 "config.json and %s differ in %" PRIu64 " setting%s: %s", with, c->count,
                 text_plural(c->count), c->differences.text == NULL ? "" : c->differences.text);
    text_release(&c->differences);
    c->count = 0;
}

fsdpck_status arguments_check(fsdpck_checkpoint *of, const meta_params *params,
                              const model_config *config, fsdpck_error *err)
{
    comparison c = {.config = config, .differences = {.limit_bytes = 4096}};
    fsdpck_error unread;
    RETURN_IF(config_settings_read(config, &c.settings, err));
    if (!c.settings.is_read)
        return FSDPCK_OK;
    if (training_arguments_visit(of, compare, &c, &unread) != FSDPCK_OK)
        c.count = 0;
    report(&c, of, "the arguments of the training");
    if (meta_params_are_of_model(params))
        compare_params(&c, params);
    report(&c, of, META_PARAMS_FILE);
    return FSDPCK_OK;
}
