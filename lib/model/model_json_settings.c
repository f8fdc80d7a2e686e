#include "model/model_json.h"

#include <string.h>

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
        if (json_is(value, names[i])) {
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

static const key_rule fsdp_rules[] = {
    KEY_BOOL("use_orig_params", model_sharding, use_orig_params),
    {"sharding_strategy", ACCEPT(JSON_STRING), STORE_NOT, 0},
    KEY_COUNT("world_size", model_sharding, world_size),
    KEY_DTYPE("param_dtype", model_sharding, param_dtype),
    KEY_DTYPE("reduce_dtype", model_sharding, reduce_dtype),
    KEY_DTYPE("buffer_dtype", model_sharding, buffer_dtype),
    KEY_BOOL("cpu_offload", model_sharding, cpu_offload),
    KEY_BOOL("limit_all_gathers", model_sharding, limit_all_gathers),
};

fsdpck_status model_read_fsdp(model_reader *r, model_sharding *s, fsdpck_error *err)
{
    unsigned seen = 0;
    *s =
        (model_sharding){.limit_all_gathers = true, .post_forward = MODEL_NONE, .with = MODEL_NONE};
    for (;;) {
        int key;
        json_token value;
        RETURN_IF(model_next_key(r, "'fsdp'", fsdp_rules, sizeof fsdp_rules / sizeof *fsdp_rules, s,
                                 &seen, &key, &value, err));
        if (key < 0)
            return FSDPCK_OK;
        RETURN_IF(read_strategy(&value, &s->strategy, err));
    }
}

static const key_rule shard_rules[] = {
    {"reshard_after_forward", ACCEPT_BOOL | ACCEPT(JSON_NUMBER), STORE_NOT, 0},
    KEY_DIM("shard_dim", raw_module, sharding.shard_dim),
    KEY_COUNT("world_size", raw_module, sharding.world_size),
    KEY_DTYPE("param_dtype", raw_module, sharding.param_dtype),
    KEY_DTYPE("reduce_dtype", raw_module, sharding.reduce_dtype),
    KEY_BOOL("cpu_offload", raw_module, sharding.cpu_offload),
    KEY_WORD("with", raw_module, with),
};

fsdpck_status model_read_fully_shard(model_reader *r, raw_module *raw, fsdpck_error *err)
{
    unsigned seen = 0;
    raw->sharding = (model_sharding){.post_forward = MODEL_NONE, .with = MODEL_NONE};
    for (;;) {
        int key;
        json_token value;
        RETURN_IF(model_next_key(r, "'fully_shard'", shard_rules,
                                 sizeof shard_rules / sizeof *shard_rules, raw, &seen, &key, &value,
                                 err));
        if (key < 0)
            return FSDPCK_OK;
        uint32_t *size = &raw->sharding.post_forward;
        *size = value.kind == JSON_TRUE;
        if (value.kind == JSON_NUMBER)
            RETURN_IF(model_get_u32(&value, 1, "reshard_after_forward", size, err));
        if (value.kind == JSON_NUMBER && *size == 1)
            *size = 0; /* torch: resharding to one rank means no resharding */
    }
}

typedef enum wrap_key { WRAP_MODULE, WRAP_CLASSES, WRAP_MIN_NUMEL, WRAP_KEYS } wrap_key;

static const key_rule wrap_rules[WRAP_KEYS] = {
    [WRAP_MODULE] = {.name = "module", .kinds = ACCEPT(JSON_STRING)},
    [WRAP_CLASSES] = {.name = "classes", .kinds = ACCEPT(JSON_ARRAY)},
    [WRAP_MIN_NUMEL] = {.name = "min_numel", .kinds = ACCEPT(JSON_NUMBER)},
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
        RETURN_IF(model_next_key(r, "'auto_wrap'", wrap_rules, WRAP_KEYS, NULL, &seen, &key, &value,
                                 err));
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
