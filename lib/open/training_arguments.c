#include "open/training_arguments.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "open/common_state.h"

/* Other names of arguments: those of config.json, or of newer releases. */
static const struct {
    const char *argument, *key;
} renamed[] = {
    {"num_layers", "num_hidden_layers"},
    {"num_experts", "n_routed_experts"},
    {"num_experts", "num_local_experts"},
    {"num_moe_experts", "num_experts"},
    {"num_moe_experts", "n_routed_experts"},
    {"num_moe_experts", "num_local_experts"},
    {"qk_head_dim", "qk_nope_head_dim"},
    {"qk_pos_emb_head_dim", "qk_rope_head_dim"},
    {"apply_layernorm_1p", "layernorm_zero_centered_gamma"},
};

/* An int, or a bool as 0 or 1. */
static bool find_number(const value_pool *pool, value arguments, const char *name, uint64_t *number)
{
    value v;
    int64_t i;
    if (!value_dict_find(pool, arguments, name, &v) || !value_as_i64(pool, v, &i) || i < 0)
        return false;
    *number = (uint64_t)i;
    return true;
}

static void take(tensor_map *m, const char *key, uint64_t number)
{
    map_take_argument(m, &(map_argument){.key = key, .key_nbytes = strlen(key), .value = number});
}

/* Without group_query_attention, num_query_groups has its default, which the model does not use. */
static void take_groups(tensor_map *m, const value_pool *pool, value arguments)
{
    value groups;
    uint64_t heads, number, grouped = 1;
    if (!find_number(pool, arguments, "num_attention_heads", &heads))
        return;
    if (find_number(pool, arguments, "group_query_attention", &grouped) && grouped == 0)
        number = heads;
    else if (!value_dict_find(pool, arguments, "num_query_groups", &groups))
        return;
    else if (value_is_none(groups))
        number = heads;
    else if (!find_number(pool, arguments, "num_query_groups", &number))
        return;
    take(m, "num_key_value_heads", number);
    take(m, "num_query_groups", number);
}

/* Without vocab_size, the number of rows of padding is unknown. The null tokenizer of some releases
 * adds a row to vocab_size. */
static void take_vocabulary(tensor_map *m, const value_pool *pool, value arguments)
{
    static const char key[] = "vocab_size";
    map_argument a = {.key = key, .key_nbytes = strlen(key), .may_differ = true};
    value tokenizer = VALUE_OF_NONE;
    const bool is_known = value_dict_find(pool, arguments, "tokenizer_type", &tokenizer);
    const bool adds_row = is_known && (value_is_str(pool, tokenizer, "NullTokenizer") ||
                                       value_is_str(pool, tokenizer, "NullMultimodalTokenizer"));
    if (adds_row || !find_number(pool, arguments, key, &a.value) || a.value == 0) {
        a.note = " with the rows of padding";
        if (!find_number(pool, arguments, "padded_vocab_size", &a.value))
            return;
    }
    map_take_argument(m, &a);
}

/* As a line of a map writes it. */
static void take_text(tensor_map *m, const value_pool *pool, value key, value v)
{
    size_t key_nbytes, nbytes = 0;
    int64_t i;
    double d;
    char number[40];
    const char *name = value_text(pool, key, &key_nbytes), *text = number;
    const value_kind kind = value_kind_of(v);
    if (kind == VALUE_STR)
        text = value_text(pool, v, &nbytes);
    else if (kind == VALUE_BOOL && value_as_i64(pool, v, &i))
        text = i != 0 ? "true" : "false";
    else if (kind == VALUE_INT && value_as_i64(pool, v, &i))
        snprintf(number, sizeof number, "%" PRId64, i);
    else if (kind == VALUE_FLOAT && value_as_double(pool, v, &d))
        snprintf(number, sizeof number, "%.15g", d);
    else
        return;
    map_take_argument_text(m, name, key_nbytes, text, kind == VALUE_STR ? nbytes : strlen(text));
}

static void take_all(tensor_map *m, const value_pool *pool, value arguments)
{
    for (size_t i = 0; i < value_count(pool, arguments); i++) {
        size_t nbytes;
        int64_t number;
        const value key = value_key(pool, arguments, i);
        if (value_kind_of(key) != VALUE_STR)
            continue;
        take_text(m, pool, key, value_item(pool, arguments, i));
        if (value_is_str(pool, key, "num_query_groups") || value_is_str(pool, key, "vocab_size") ||
            !value_as_i64(pool, value_item(pool, arguments, i), &number) || number < 0)
            continue;
        const char *name = value_text(pool, key, &nbytes);
        map_take_argument(
            m, &(map_argument){.key = name, .key_nbytes = nbytes, .value = (uint64_t)number});
    }
    for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++) {
        uint64_t number;
        if (find_number(pool, arguments, renamed[i].argument, &number) && number > 0)
            take(m, renamed[i].key, number);
    }
    take_groups(m, pool, arguments);
    take_vocabulary(m, pool, arguments);
}

typedef struct visit {
    arguments_fn fn;
    void *ctx;
} visit;

/* `common`: the dict that has 'args', an object with attributes or a dict. */
static void visit_common(void *ctx, value_pool *pool, value common)
{
    const visit *v = ctx;
    value dict, found;
    if (!value_as_dict(pool, common, &dict) || !value_dict_find(pool, dict, "args", &found))
        return;
    const value_call *call = value_call_of(pool, found);
    if (call != NULL && call->has_state)
        found = call->state;
    if (value_as_dict(pool, found, &dict))
        v->fn(v->ctx, pool, dict);
}

fsdpck_status training_arguments_visit(fsdpck_checkpoint *of, arguments_fn fn, void *ctx,
                                       fsdpck_error *err)
{
    bool found;
    visit v = {fn, ctx};
    while (of->base != NULL)
        of = of->base;
    return common_state_read(of, visit_common, &v, &found, err);
}

static void take_of_map(void *ctx, const value_pool *pool, value arguments)
{
    take_all(ctx, pool, arguments);
}

fsdpck_status training_arguments_take(fsdpck_checkpoint *of, tensor_map *m, fsdpck_error *err)
{
    return training_arguments_visit(of, take_of_map, m, err);
}
