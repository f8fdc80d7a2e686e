#include "open/config_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_NBYTES 64u

/* Those that only some trainers write are compared if both folders have them. The first ones also set
 * shapes: other numbers of heads may give the same shapes. */
static const char *const keys[] = {
    "hidden_size", /* not compared here */
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rope_theta",
    "rope_type",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "long_factor",
    "short_factor",
    "partial_rotary_factor",
    "rotary_pct",
    "rotary_emb_base",
    "rope_local_base_freq",
    "rope_interleave",
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "norm_eps",
    "norm_epsilon",
    "hidden_act",
    "hidden_activation",
    "activation_function",
    "attention_multiplier",
    "embedding_multiplier",
    "residual_multiplier",
    "logits_scaling",
    "logit_scale",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "attention_chunk_size",
    "num_experts_per_tok",
    "norm_topk_prob",
    "routed_scaling_factor",
    "scoring_func",
    "topk_method",
    "n_group",
    "topk_group",
    "layer_types",
    "model_type",
    "architectures",
};
#define KEYS (sizeof keys / sizeof *keys)

_Static_assert(KEYS <= CONFIG_SETTINGS_MAX, "settings fit");

/* ---- reading ---- */

typedef enum place_of_member { AT_TOP, IN_TEXT, IN_ROPE } place_of_member;

static size_t find_key(const char *key)
{
    size_t i = 0;
    while (i < KEYS && strcmp(keys[i], key) != 0)
        i++;
    return i;
}

/* Members of transformers before and from version 5. */
static bool is_rope(const char *key)
{
    return strcmp(key, "rope_scaling") == 0 || strcmp(key, "rope_parameters") == 0;
}

/* Members that count only in an object of RoPE: elsewhere, the same word may mean another thing. */
static bool is_of_rope(size_t index)
{
    return index >= find_key("rope_type") && index <= find_key("short_factor");
}

/* Older names of kinds of RoPE; that of images computes the same for text. */
static const char *usual_rope(const char *name)
{
    return strcmp(name, "su") == 0 ? "longrope" : strcmp(name, "mrope") == 0 ? "default" : name;
}

/* Two names of one function in transformers. */
static const char *usual_activation(const char *name)
{
    return strcmp(name, "swish") == 0 ? "silu" : name;
}

static bool is_activation(size_t index)
{
    return index >= find_key("hidden_act") && index <= find_key("activation_function");
}

static void take_value(config_setting *s, size_t index, const json_token *t)
{
    *s = (config_setting){.kind = JSON_END};
    if (t->kind == JSON_TRUE || t->kind == JSON_FALSE || t->kind == JSON_NULL)
        snprintf(s->text, sizeof s->text, "%s",
                 t->kind == JSON_NULL   ? "null"
                 : t->kind == JSON_TRUE ? "true"
                                        : "false");
    else if ((t->kind == JSON_STRING || t->kind == JSON_NUMBER) && t->nbytes < sizeof s->text &&
             memchr(t->text, '\0', t->nbytes) == NULL)
        snprintf(s->text, sizeof s->text, "%.*s", (int)t->nbytes, t->text);
    else
        return;
    s->kind = t->kind;
    s->u64 = t->kind == JSON_NUMBER && t->is_u64 ? t->u64 : 0;
    s->number = t->kind == JSON_NUMBER ? strtod(s->text, NULL) : 0;
    if (t->kind == JSON_STRING && index == find_key("rope_type"))
        memmove(s->text, usual_rope(s->text), strlen(usual_rope(s->text)) + 1);
    if (t->kind == JSON_STRING && is_activation(index))
        memmove(s->text, usual_activation(s->text), strlen(usual_activation(s->text)) + 1);
}

static void take_member(config_settings *s, place_of_member where, bool nested, const char *key,
                        const json_token *t)
{
    const bool in_rope = where == IN_ROPE;
    const size_t i = find_key(in_rope && strcmp(key, "type") == 0 ? "rope_type" : key);
    s->rope_by_layer = s->rope_by_layer || (in_rope && t->kind == JSON_OBJECT);
    if (i < KEYS && (in_rope || !is_of_rope(i)))
        take_value(nested ? &s->nested[i] : &s->top[i], i, t);
}

/* FNV-1a of the items. Lists inside lists are not compared. */
static fsdpck_status read_list(config_setting *s, json_reader *r, fsdpck_error *err)
{
    json_token t;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    size_t count = 0;
    *s = (config_setting){.kind = JSON_ARRAY};
    RETURN_IF(json_next(r, &t, err));
    for (; t.kind != JSON_ARRAY_END; count++) {
        config_setting item;
        take_value(&item, KEYS, &t);
        if (item.kind == JSON_END)
            s->kind = JSON_END;
        if (item.kind == JSON_NUMBER)
            snprintf(item.text, sizeof item.text, "%.17g", item.number);
        for (const char *at = item.text; at == item.text || at[-1] != '\0'; at++)
            hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
        if (count == 0)
            snprintf(s->text, sizeof s->text, "[%.20s", item.text);
        RETURN_IF(json_skip(r, &t, err));
        RETURN_IF(json_next(r, &t, err));
    }
    const size_t n = strlen(s->text);
    if (count > 1)
        snprintf(s->text + n, sizeof s->text - n, ", ...] of %zu", count);
    else
        snprintf(s->text + n, sizeof s->text - n, n == 0 ? "[]" : "]");
    s->u64 = hash;
    return FSDPCK_OK;
}

/* The setting that a member of this name is; NULL: none. */
static config_setting *find_setting(config_settings *s, place_of_member where, bool nested,
                                    const char *key)
{
    const size_t i = find_key(key);
    if (i == KEYS || (where != IN_ROPE && is_of_rope(i)))
        return NULL;
    return nested ? &s->nested[i] : &s->top[i];
}

static fsdpck_status read_members(config_settings *s, json_reader *r, fsdpck_error *err)
{
    json_token t;
    char key[KEY_NBYTES];
    place_of_member where = AT_TOP;
    bool nested = false;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END && where == AT_TOP)
            return FSDPCK_OK;
        if (t.kind == JSON_OBJECT_END) {
            where = where == IN_ROPE && nested ? IN_TEXT : AT_TOP;
            nested = where == IN_TEXT;
            continue;
        }
        snprintf(key, sizeof key, "%.*s", (int)(t.nbytes < sizeof key ? t.nbytes : 0), t.text);
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT && where == AT_TOP && strcmp(key, "text_config") == 0) {
            where = IN_TEXT;
            nested = true;
        } else if (t.kind == JSON_OBJECT && where != IN_ROPE && is_rope(key)) {
            where = IN_ROPE;
        } else if (t.kind == JSON_ARRAY && find_setting(s, where, nested, key) != NULL) {
            RETURN_IF(read_list(find_setting(s, where, nested, key), r, err));
        } else {
            take_member(s, where, nested, key, &t);
            RETURN_IF(json_skip(r, &t, err));
        }
    }
}

fsdpck_status config_settings_read(const model_config *config, config_settings *s,
                                   fsdpck_error *err)
{
    json_reader r;
    fsdpck_error local = FSDPCK_ERROR_INIT;
    *s = (config_settings){.is_read = false};
    if (config->text == NULL)
        return FSDPCK_OK;
    json_reader_init(&r, config->text, config->nbytes, FSDPCK_FINDING_MAP_CONFIG);
    r.takes_python_numbers = true;
    const fsdpck_status st = read_members(s, &r, &local);
    json_reader_release(&r);
    s->is_read = st == FSDPCK_OK;
    if (st == FSDPCK_OK || st == FSDPCK_BADINPUT)
        return FSDPCK_OK;
    if (err != NULL)
        *err = local;
    return st;
}

/* ---- values ---- */

size_t config_settings_count(void)
{
    return KEYS;
}

const char *config_settings_key(size_t index)
{
    return keys[index];
}

const config_setting *config_settings_of(const config_settings *s, size_t index)
{
    static const config_setting plain_rope = {.kind = JSON_STRING, .text = "default"};
    const config_setting *found =
        s->top[index].kind != JSON_END ? &s->top[index] : &s->nested[index];
    if (index == find_key("rope_type") && found->kind != JSON_STRING && !s->rope_by_layer)
        return &plain_rope;
    return found;
}

const config_setting *config_settings_find(const config_settings *s, const char *key)
{
    return config_settings_of(s, find_key(key));
}

uint64_t config_settings_number(const config_settings *s, const char *key)
{
    const size_t i = find_key(key);
    return i < KEYS ? config_settings_of(s, i)->u64 : 0;
}

/* Where null means that there is none; elsewhere it means a default, which may be the other's value. */
static bool has_off(size_t index)
{
    return index == find_key("sliding_window") || index == find_key("attn_logit_softcapping") ||
           index == find_key("final_logit_softcapping");
}

static bool is_window(size_t index)
{
    return index == find_key("sliding_window") || index == find_key("max_window_layers");
}

static json_kind window_of(const config_settings *s)
{
    return config_settings_of(s, find_key("use_sliding_window"))->kind;
}

/* Models with the switch ignore the window while it is off, as it is by default. */
static bool has_no_window(const config_settings *a, const config_settings *b)
{
    const json_kind x = window_of(a), y = window_of(b);
    return (x == JSON_FALSE && (y == JSON_FALSE || y == JSON_END)) ||
           (x == JSON_END && y == JSON_FALSE);
}

bool config_settings_differ(const config_settings *a, const config_settings *b, size_t index)
{
    const config_setting *x = config_settings_of(a, index), *y = config_settings_of(b, index);
    if (x->kind == JSON_END || y->kind == JSON_END || index == find_key("hidden_size"))
        return false;
    if (is_window(index) && has_no_window(a, b))
        return false;
    if (x->kind == JSON_ARRAY && y->kind == JSON_ARRAY)
        return x->u64 != y->u64;
    if ((x->kind == JSON_NULL || y->kind == JSON_NULL) && !has_off(index))
        return false;
    if (x->kind != y->kind)
        return true;
    return strcmp(x->text, y->text) != 0 && (x->kind != JSON_NUMBER || x->number != y->number);
}
