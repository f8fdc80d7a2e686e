/* map_variables.c: values of the variables of a map, from config.json and from the user. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "map/map_internal.h"

static map_variable_def *variable_at(const tensor_map *m, size_t index)
{
    return VEC_AT(&m->variables, map_variable_def, index);
}

size_t map_variable_count(const tensor_map *m)
{
    return m->variables.count;
}

const char *map_variable(const tensor_map *m, size_t index, bool *is_set, uint64_t *value)
{
    const map_variable_def *v = variable_at(m, index);
    *is_set = v->is_set;
    *value = v->value;
    return strtab_text(&m->texts, v->name);
}

static map_variable_def *find_variable(const tensor_map *m, uint32_t name)
{
    for (size_t i = 0; name != STRTAB_NONE && i < m->variables.count; i++)
        if (variable_at(m, i)->name == name)
            return variable_at(m, i);
    return NULL;
}

fsdpck_status map_set_variable(tensor_map *m, const char *text, fsdpck_error *err)
{
    const char *equals = strchr(text, '=');
    const size_t nbytes = equals == NULL ? 0 : (size_t)(equals - text);
    map_variable_def *v = find_variable(m, strtab_find(&m->texts, text, nbytes));
    const bool is_switch = v != NULL && v->is_switch;
    uint64_t value;
    if (equals == NULL || !map_parse_number(equals + 1, strlen(equals + 1), &value) ||
        (is_switch ? value > 1 : value == 0))
        return FAIL_WITH(err, USAGE, MAP_VARIABLE, ("'%s' sets no variable", text),
                         (expected, "NAME=N with %s", is_switch ? "0 or 1" : "a positive integer"),
                         (next, "write --map-set NAME=N"));
    if (v == NULL)
        return FAIL_WITH(err, USAGE, MAP_VARIABLE,
                         ("the map has no variable '%.*s'", (int)nbytes, text),
                         (next, "compare the name with the rules of the map: fsdpck maps NAME"));
    v->is_set = v->by_user = true;
    v->value = value;
    return FSDPCK_OK;
}

/* --- config.json --- */

static fsdpck_status take_number(const tensor_map *m, map_variable_def *v, uint32_t key,
                                 bool in_text_config, const json_token *t, fsdpck_error *err)
{
    if (v->by_user && !v->is_switch && key == 0 && t->kind == JSON_NUMBER && t->is_u64 &&
        (v->stated == 0 || !in_text_config))
        v->stated = t->u64;
    if (t->kind == JSON_NULL || v->by_user || v->is_switch)
        return FSDPCK_OK;
    if (v->is_set &&
        (v->found_key < key || (v->found_key == key && !v->in_text_config && in_text_config)))
        return FSDPCK_OK;
    if (t->kind != JSON_NUMBER || !t->is_u64 || t->u64 == 0 || t->u64 > (uint64_t)1 << 40)
        return FAIL_WITH(
            err, BADINPUT, MAP_CONFIG,
            ("'%s' is not a positive integer",
             strtab_text(&m->texts, *VEC_AT(&m->keys, const uint32_t, v->first_key + key))),
            (offset, t->offset_bytes));
    v->is_set = true;
    v->found_key = key;
    v->in_text_config = in_text_config;
    v->value = t->u64;
    return FSDPCK_OK;
}

static fsdpck_status take_member(tensor_map *m, uint32_t key_text, bool in_text_config,
                                 const json_token *t, fsdpck_error *err)
{
    for (size_t i = 0; key_text != STRTAB_NONE && i < m->variables.count; i++) {
        map_variable_def *v = variable_at(m, i);
        for (uint32_t k = 0; k < v->nkeys; k++)
            if (*VEC_AT(&m->keys, const uint32_t, v->first_key + k) == key_text)
                RETURN_IF(take_number(m, v, k, in_text_config, t, err));
    }
    return FSDPCK_OK;
}

/* "head_dim", at the top or in text_config. */
static void take_head_dim(tensor_map *m, bool in_text_config, const json_token *t)
{
    if (t->kind != JSON_NUMBER || !t->is_u64 || t->u64 == 0 ||
        (in_text_config && m->head_dim_at_top))
        return;
    m->head_dim = t->u64;
    m->head_dim_at_top = !in_text_config;
}

/* A size of the model. */
static void take_size(map_config_sizes *sizes, const char *key, size_t nbytes, const json_token *t)
{
    const struct {
        const char *key;
        uint64_t *size;
    } keys[] = {{"hidden_size", &sizes->hidden_size},
                {"num_attention_heads", &sizes->num_attention_heads},
                {"num_hidden_layers", &sizes->num_hidden_layers},
                {"vocab_size", &sizes->vocab_size},
                {"zero_expert_num", &sizes->zero_expert_num}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (t->kind == JSON_NUMBER && t->is_u64 && nbytes == strlen(keys[i].key) &&
            memcmp(key, keys[i].key, nbytes) == 0)
            *keys[i].size = t->u64;
    static const char *const experts[MAP_EXPERT_KEYS] = MAP_EXPERT_KEY_NAMES;
    for (size_t i = 0; i < MAP_EXPERT_KEYS; i++)
        if (t->kind == JSON_NUMBER && t->is_u64 && text_is(key, nbytes, experts[i]))
            sizes->experts[i] = t->u64;
}

map_config_sizes map_sizes(const tensor_map *m)
{
    const map_config_sizes *a = &m->top, *b = &m->nested;
    map_config_sizes sizes = {
        .hidden_size = a->hidden_size > 0 ? a->hidden_size : b->hidden_size,
        .num_attention_heads =
            a->num_attention_heads > 0 ? a->num_attention_heads : b->num_attention_heads,
        .num_hidden_layers = a->num_hidden_layers > 0 ? a->num_hidden_layers : b->num_hidden_layers,
        .vocab_size = a->vocab_size > 0 ? a->vocab_size : b->vocab_size,
        .zero_expert_num = a->zero_expert_num > 0 ? a->zero_expert_num : b->zero_expert_num};
    for (size_t i = 0; i < MAP_EXPERT_KEYS; i++)
        sizes.experts[i] = a->experts[i] > 0 ? a->experts[i] : b->experts[i];
    return sizes;
}

bool map_uses_config(const tensor_map *m)
{
    for (size_t i = 0; i < m->variables.count; i++) {
        const map_variable_def *v = variable_at(m, i);
        if (v->is_set && !v->by_user && v->found_key != MAP_NONE)
            return true;
    }
    return false;
}

bool map_counts_layers(const tensor_map *m)
{
    static const char layers[] = "num_hidden_layers";
    for (size_t i = 0; i < m->variables.count; i++) {
        const map_variable_def *v = variable_at(m, i);
        if (v->nkeys > 0 && strtab_is(&m->texts, *VEC_AT(&m->keys, const uint32_t, v->first_key),
                                      layers, strlen(layers)))
            return true;
    }
    return false;
}

/* "model_type", at the top or in text_config. */
static void take_model_type(tensor_map *m, bool in_text_config, const json_token *t)
{
    char *type = in_text_config ? m->nested_model_type : m->model_type;
    if (t->kind == JSON_STRING && t->nbytes < sizeof m->model_type &&
        memchr(t->text, '\0', t->nbytes) == NULL)
        snprintf(type, sizeof m->model_type, "%.*s", (int)t->nbytes, t->text);
}

static bool is_key(const json_token *t, const char *key)
{
    return t->nbytes == strlen(key) && memcmp(t->text, key, t->nbytes) == 0;
}

/* Members of the object that was begun, to its end. */
static fsdpck_status read_members(tensor_map *m, json_reader *r, fsdpck_error *err)
{
    json_token t;
    bool in_text_config = false;
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END && !in_text_config)
            return FSDPCK_OK;
        if (t.kind == JSON_OBJECT_END) {
            in_text_config = false;
            continue;
        }
        const uint32_t key = strtab_find(&m->texts, t.text, t.nbytes);
        const bool nested = !in_text_config && is_key(&t, "text_config");
        const bool head_dim = is_key(&t, "head_dim"), type = is_key(&t, "model_type");
        char name[32];
        const size_t nbytes = t.nbytes < sizeof name ? t.nbytes : 0;
        memcpy(name, t.text, nbytes);
        RETURN_IF(json_next(r, &t, err));
        if (nested && t.kind == JSON_OBJECT) {
            in_text_config = m->stated.has_nested = true;
            continue;
        }
        model_ties_take(&m->stated, in_text_config, name, nbytes, &t);
        if (head_dim)
            take_head_dim(m, in_text_config, &t);
        take_size(in_text_config ? &m->nested : &m->top, name, nbytes, &t);
        if (type)
            take_model_type(m, in_text_config, &t);
        RETURN_IF(take_member(m, key, in_text_config, &t, err));
        RETURN_IF(json_skip(r, &t, err));
    }
}

fsdpck_status map_read_config(tensor_map *m, const char *text, size_t nbytes, fsdpck_error *err)
{
    json_reader r;
    json_token t;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_MAP_CONFIG);
    r.takes_python_numbers = true;
    fsdpck_status st = json_expect(&r, JSON_OBJECT, &t, err);
    if (st == FSDPCK_OK)
        st = read_members(m, &r, err);
    if (st == FSDPCK_OK)
        st = json_expect(&r, JSON_END, &t, err);
    json_reader_release(&r);
    return st;
}

fsdpck_status map_check_set(const tensor_map *m, fsdpck_error *err)
{
    for (size_t i = 0; i < m->variables.count; i++) {
        const map_variable_def *v = variable_at(m, i);
        if (!v->by_user || v->stated == 0 || v->stated == v->value || !map_counts_heads(m, v))
            continue;
        const char *name = strtab_text(&m->texts, v->name);
        const uint32_t key = *VEC_AT(&m->keys, const uint32_t, v->first_key);
        return FAIL_WITH(err, BADINPUT, EXPORT_CONFIG,
                         ("--map-set %s=%" PRIu64 " contradicts config.json", name, v->value),
                         (expected, "'%s' %" PRIu64, strtab_text(&m->texts, key), v->stated),
                         (found, "%" PRIu64, v->value),
                         (next,
                          "omit --map-set %s; if config.json is wrong, give the right one "
                          "with --config",
                          name));
    }
    return FSDPCK_OK;
}

/* "'num_key_value_heads' or 'num_attention_heads'" */
static void put_keys(const tensor_map *m, const map_variable_def *v, text_buf *text)
{
    for (uint32_t k = 0; k < v->nkeys; k++)
        text_printf(text, "%s'%s'", k == 0 ? "" : " or ",
                    strtab_text(&m->texts, *VEC_AT(&m->keys, const uint32_t, v->first_key + k)));
}

int8_t map_added(const tensor_map *m, const map_op *op)
{
    const map_value *v = VEC_AT(&m->values, const map_value, op->first_value);
    const uint64_t value = v->variable == MAP_NONE ? v->number : variable_at(m, v->variable)->value;
    return (int8_t)(value == 0 ? 0 : op->subtract ? -1 : 1);
}

bool map_value_is_set(const tensor_map *m, const map_value *v)
{
    return v->variable == MAP_NONE || variable_at(m, v->variable)->is_set;
}

fsdpck_status map_get_value(const tensor_map *m, const map_value *v, uint64_t *value,
                            fsdpck_error *err)
{
    *value = v->number;
    if (v->variable == MAP_NONE)
        return FSDPCK_OK;
    const map_variable_def *d = variable_at(m, v->variable);
    *value = d->value;
    if (d->is_set)
        return FSDPCK_OK;
    const char *name = strtab_text(&m->texts, d->name);
    text_buf keys = {.limit_bytes = 300};
    put_keys(m, d, &keys);
    const fsdpck_status st = FAIL_WITH(
        err, USAGE, MAP_VARIABLE,
        ("variable '%s' has no value: line %u, column %u of the map", name, v->at.line,
         v->at.column),
        (expected, "%s in config.json", keys.text == NULL ? "a key" : keys.text),
        (next, "give --config FILE with the config.json of the model, or --map-set %s=N", name));
    text_release(&keys);
    return st;
}
