#include "model/model_json.h"

#include <string.h>

static bool is_text(const json_token *value, const char *text)
{
    return value->nbytes == strlen(text) && memcmp(value->text, text, value->nbytes) == 0;
}

static fsdpck_status read_strategy(const json_token *value, uint8_t *strategy, fsdpck_error *err)
{
    static const char *const names[] = {
        [STRATEGY_FULL_SHARD] = "FULL_SHARD",
        [STRATEGY_SHARD_GRAD_OP] = "SHARD_GRAD_OP",
        [STRATEGY_NO_SHARD] = "NO_SHARD",
        [STRATEGY_HYBRID_SHARD] = "HYBRID_SHARD",
        [STRATEGY_HYBRID_SHARD_ZERO2] = "_HYBRID_SHARD_ZERO2",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (is_text(value, names[i])) {
            *strategy = (uint8_t)i;
            return FSDPCK_OK;
        }
    }
    char shown[64];
    return FAIL_WITH(
        err, BADINPUT, MODEL_KEY, ("'sharding_strategy' is not known"),
        (offset, value->offset_bytes),
        (expected, "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or _HYBRID_SHARD_ZERO2"),
        (found, "'%s'", escape_text(shown, sizeof shown, value->text, value->nbytes)));
}

typedef enum fsdp_key {
    FSDP_USE_ORIG_PARAMS,
    FSDP_STRATEGY,
    FSDP_WORLD_SIZE,
    FSDP_PARAM_DTYPE,
    FSDP_REDUCE_DTYPE,
    FSDP_BUFFER_DTYPE,
    FSDP_CPU_OFFLOAD,
    FSDP_LIMIT_ALL_GATHERS,
    FSDP_KEYS
} fsdp_key;

static const key_rule fsdp_rules[FSDP_KEYS] = {
    [FSDP_USE_ORIG_PARAMS] = {"use_orig_params", ACCEPT_BOOL},
    [FSDP_STRATEGY] = {"sharding_strategy", ACCEPT(JSON_STRING)},
    [FSDP_WORLD_SIZE] = {"world_size", ACCEPT(JSON_NUMBER)},
    [FSDP_PARAM_DTYPE] = {"param_dtype", ACCEPT(JSON_STRING)},
    [FSDP_REDUCE_DTYPE] = {"reduce_dtype", ACCEPT(JSON_STRING)},
    [FSDP_BUFFER_DTYPE] = {"buffer_dtype", ACCEPT(JSON_STRING)},
    [FSDP_CPU_OFFLOAD] = {"cpu_offload", ACCEPT_BOOL},
    [FSDP_LIMIT_ALL_GATHERS] = {"limit_all_gathers", ACCEPT_BOOL},
};

static fsdpck_status read_fsdp_value(model_sharding *s, int key, const json_token *value,
                                     fsdpck_error *err)
{
    const bool yes = value->kind == JSON_TRUE;
    switch ((fsdp_key)key) {
    case FSDP_USE_ORIG_PARAMS:
        s->use_orig_params = yes;
        break;
    case FSDP_STRATEGY:
        return read_strategy(value, &s->strategy, err);
    case FSDP_WORLD_SIZE:
        return model_get_u32(value, 1, "world_size", &s->world_size, err);
    case FSDP_PARAM_DTYPE:
        return model_get_dtype(value, "param_dtype", &s->param_dtype, err);
    case FSDP_REDUCE_DTYPE:
        return model_get_dtype(value, "reduce_dtype", &s->reduce_dtype, err);
    case FSDP_BUFFER_DTYPE:
        return model_get_dtype(value, "buffer_dtype", &s->buffer_dtype, err);
    case FSDP_CPU_OFFLOAD:
        s->cpu_offload = yes;
        break;
    case FSDP_LIMIT_ALL_GATHERS:
        s->limit_all_gathers = yes;
        break;
    case FSDP_KEYS:
        break;
    }
    return FSDPCK_OK;
}

fsdpck_status model_read_fsdp(model_reader *r, model_sharding *s, fsdpck_error *err)
{
    unsigned seen = 0;
    *s =
        (model_sharding){.limit_all_gathers = true, .post_forward = MODEL_NONE, .with = MODEL_NONE};
    for (;;) {
        int key;
        json_token value;
        RETURN_IF(model_next_key(r, "'fsdp'", fsdp_rules, FSDP_KEYS, &seen, &key, &value, err));
        if (key < 0)
            return FSDPCK_OK;
        RETURN_IF(read_fsdp_value(s, key, &value, err));
    }
}

typedef enum shard_key {
    SHARD_RESHARD,
    SHARD_DIM,
    SHARD_WORLD_SIZE,
    SHARD_PARAM_DTYPE,
    SHARD_REDUCE_DTYPE,
    SHARD_CPU_OFFLOAD,
    SHARD_WITH,
    SHARD_KEYS
} shard_key;

static const key_rule shard_rules[SHARD_KEYS] = {
    [SHARD_RESHARD] = {"reshard_after_forward", ACCEPT_BOOL | ACCEPT(JSON_NUMBER)},
    [SHARD_DIM] = {"shard_dim", ACCEPT(JSON_NUMBER)},
    [SHARD_WORLD_SIZE] = {"world_size", ACCEPT(JSON_NUMBER)},
    [SHARD_PARAM_DTYPE] = {"param_dtype", ACCEPT(JSON_STRING)},
    [SHARD_REDUCE_DTYPE] = {"reduce_dtype", ACCEPT(JSON_STRING)},
    [SHARD_CPU_OFFLOAD] = {"cpu_offload", ACCEPT_BOOL},
    [SHARD_WITH] = {"with", ACCEPT(JSON_STRING)},
};

static fsdpck_status read_shard_dim(const json_token *value, uint8_t *dim, fsdpck_error *err)
{
    uint32_t number = 0;
    RETURN_IF(model_get_u32(value, 0, "shard_dim", &number, err));
    *dim = (uint8_t)(number < NDIM_MAX ? number : NDIM_MAX);
    return FSDPCK_OK;
}

static fsdpck_status read_shard_value(model_reader *r, raw_module *raw, int key,
                                      const json_token *value, fsdpck_error *err)
{
    model_sharding *s = &raw->sharding;
    switch ((shard_key)key) {
    case SHARD_RESHARD:
        s->post_forward = value->kind == JSON_TRUE;
        if (value->kind == JSON_NUMBER)
            RETURN_IF(model_get_u32(value, 1, "reshard_after_forward", &s->post_forward, err));
        if (value->kind == JSON_NUMBER && s->post_forward == 1)
            s->post_forward = 0; /* torch: resharding to one rank means no resharding */
        break;
    case SHARD_DIM:
        return read_shard_dim(value, &s->shard_dim, err);
    case SHARD_WORLD_SIZE:
        return model_get_u32(value, 1, "world_size", &s->world_size, err);
    case SHARD_PARAM_DTYPE:
        return model_get_dtype(value, "param_dtype", &s->param_dtype, err);
    case SHARD_REDUCE_DTYPE:
        return model_get_dtype(value, "reduce_dtype", &s->reduce_dtype, err);
    case SHARD_CPU_OFFLOAD:
        s->cpu_offload = value->kind == JSON_TRUE;
        break;
    case SHARD_WITH:
        raw->with = model_save_word(r, value);
        raw->has_with = true;
        break;
    case SHARD_KEYS:
        break;
    }
    return FSDPCK_OK;
}

fsdpck_status model_read_fully_shard(model_reader *r, raw_module *raw, fsdpck_error *err)
{
    unsigned seen = 0;
    raw->sharding = (model_sharding){.post_forward = MODEL_NONE, .with = MODEL_NONE};
    for (;;) {
        int key;
        json_token value;
        RETURN_IF(
            model_next_key(r, "'fully_shard'", shard_rules, SHARD_KEYS, &seen, &key, &value, err));
        if (key < 0)
            break;
        RETURN_IF(read_shard_value(r, raw, key, &value, err));
    }
    return FSDPCK_OK;
}

typedef enum wrap_key { WRAP_MODULE, WRAP_CLASSES, WRAP_MIN_NUMEL, WRAP_KEYS } wrap_key;

static const key_rule wrap_rules[WRAP_KEYS] = {
    [WRAP_MODULE] = {"module", ACCEPT(JSON_STRING)},
    [WRAP_CLASSES] = {"classes", ACCEPT(JSON_ARRAY)},
    [WRAP_MIN_NUMEL] = {"min_numel", ACCEPT(JSON_NUMBER)},
};

static fsdpck_status read_classes(model_reader *r, fsdpck_error *err)
{
    for (;;) {
        json_token t;
        RETURN_IF(json_next(&r->json, &t, err));
        if (t.kind == JSON_ARRAY_END)
            return FSDPCK_OK;
        if (t.kind != JSON_STRING)
            return FAIL_WITH(
                err, BADINPUT, MODEL_KEY, ("'classes' contains an item that is not a string"),
                (offset, t.offset_bytes), (expected, "names of classes, as in the modules"),
                (found, "a different type"));
        uint32_t *id = vec_push(&r->wrap.classes, err);
        if (id == NULL)
            return FSDPCK_LIMIT;
        RETURN_IF(strtab_intern(&r->m->classes, t.text, t.nbytes, id, err));
    }
}

fsdpck_status model_read_wrap(model_reader *r, size_t offset_bytes, fsdpck_error *err)
{
    unsigned seen = 0;
    r->wraps = true;
    r->wrap.offset_bytes = offset_bytes;
    for (;;) {
        int key;
        json_token value;
        RETURN_IF(
            model_next_key(r, "'auto_wrap'", wrap_rules, WRAP_KEYS, &seen, &key, &value, err));
        if (key < 0)
            break;
        if (key == WRAP_MODULE) {
            text_append(&r->wrap_path, value.text, value.nbytes);
        } else if (key == WRAP_CLASSES) {
            RETURN_IF(read_classes(r, err));
        } else if (value.is_u64) {
            r->wrap.min_numel = value.u64;
            r->wrap.by_size = true;
        } else {
            uint32_t none;
            RETURN_IF(model_get_u32(&value, 0, "min_numel", &none, err));
        }
    }
    if (r->wrap.by_size != (seen >> WRAP_CLASSES & 1))
        return text_check(&r->wrap_path, err);
    return FAIL_WITH(err, BADINPUT, MODEL_KEY, ("'auto_wrap' is not one policy"),
                     (offset, offset_bytes), (expected, "either 'classes' or 'min_numel'"),
                     (found, r->wrap.by_size ? "both" : "neither"));
}
