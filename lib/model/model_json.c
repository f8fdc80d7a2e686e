#include "model/model_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/unit_json.h"

typedef enum top_key {
    TOP_VERSION,
    TOP_TORCH,
    TOP_WORLD_SIZE,
    TOP_AUTO_WRAP,
    TOP_OPTIMIZERS,
    TOP_MODULES,
    TOP_UNITS,
    TOP_KEYS
} top_key;

static const key_rule top_rules[TOP_KEYS] = {
    [TOP_VERSION] = {.name = "version", .kinds = ACCEPT(JSON_NUMBER)},
    [TOP_TORCH] = {.name = "torch", .kinds = ACCEPT(JSON_STRING)},
    [TOP_WORLD_SIZE] = {.name = "world_size", .kinds = ACCEPT(JSON_NUMBER)},
    [TOP_AUTO_WRAP] = {.name = "auto_wrap", .kinds = ACCEPT(JSON_OBJECT)},
    [TOP_OPTIMIZERS] = {.name = "optimizers", .kinds = ACCEPT(JSON_OBJECT)},
    [TOP_MODULES] = {.name = "modules", .kinds = ACCEPT(JSON_ARRAY)},
    [TOP_UNITS] = {.name = "units", .kinds = ACCEPT(JSON_ARRAY)},
};

static fsdpck_status read_version(const json_token *value, fsdpck_error *err)
{
    if (value->is_u64 && value->u64 == 1)
        return FSDPCK_OK;
    char shown[64];
    return FAIL_WITH(err, BADINPUT, MODEL_VERSION, ("description has an unknown version"),
                     (offset, value->offset_bytes), (expected, "1"),
                     (found, "%s", escape_text(shown, sizeof shown, value->text, value->nbytes)),
                     (next, "write it with the describe_model.py of this release"));
}

/* "2.15.0", also with a build suffix: "2.6.0a0+git1234". */
static fsdpck_status read_torch(model *m, const json_token *value, fsdpck_error *err)
{
    char text[32];
    char end;
    const size_t n = value->nbytes < sizeof text - 1 ? value->nbytes : sizeof text - 1;
    memcpy(text, value->text, n);
    text[n] = '\0';
    if (sscanf(text, "%3" SCNu32 ".%3" SCNu32 "%c", &m->torch.major, &m->torch.minor, &end) < 2)
        return model_refuse_value(value, "torch", "a release, such as '2.15.0'", err);
    return FSDPCK_OK;
}

/* Lists are read at once, so the keys that determine how to read them must come first. */
static fsdpck_status check_order(int key, unsigned seen, size_t offset_bytes, fsdpck_error *err)
{
    const unsigned lists = 1u << TOP_MODULES | 1u << TOP_UNITS;
    const unsigned self = 1u << key;
    const char *late = NULL;
    if (self & lists && seen & lists & ~self)
        late = "either 'modules' or 'units'";
    else if (self & lists && !(seen & 1u << TOP_VERSION))
        late = "'version' before the list";
    else if (!(self & lists) && seen & 1u << TOP_UNITS)
        late = "'units' last";
    if (late == NULL)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, MODEL_KEY, ("a key of the description is in the wrong place"),
                     (offset, offset_bytes), (expected, "%s", late),
                     (found, "'%s' here", top_rules[key].name));
}

static fsdpck_status read_top_value(model_reader *r, int key, const json_token *value,
                                    fsdpck_error *err)
{
    model *m = r->m;
    switch ((top_key)key) {
    case TOP_VERSION:
        return read_version(value, err);
    case TOP_TORCH:
        return read_torch(m, value, err);
    case TOP_WORLD_SIZE:
        return model_get_u32(value, 1, "world_size", &m->world_size, err);
    case TOP_AUTO_WRAP:
        return model_read_wrap(r, value->offset_bytes, err);
    case TOP_OPTIMIZERS:
        return model_read_optimizers(r, err);
    case TOP_MODULES:
        return model_read_modules(r, err);
    case TOP_UNITS: {
        const unit_defaults defaults =
            unit_defaults_of(m->world_size, m->torch.major, m->torch.minor);
        m->lists_units = true;
        return unit_json_read(&r->json, &defaults, &m->units, err);
    }
    case TOP_KEYS:
        break;
    }
    return FSDPCK_OK;
}

static fsdpck_status find_wrapped(model_reader *r, fsdpck_error *err)
{
    const char *path = r->wrap_path.text == NULL ? "" : r->wrap_path.text;
    r->wrap.module = model_find_module(r->m, path, r->wrap_path.nbytes);
    const model_module *module =
        r->wrap.module == MODEL_NONE ? NULL : model_module_at(r->m, r->wrap.module);
    if (module != NULL && module->kinds & MODULE_FSDP)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, MODEL_WRAP, ("auto_wrap belongs to no FSDP call"),
                     (offset, r->wrap.offset_bytes), (tensor, path),
                     (expected, "a module with 'fsdp'"),
                     (found, module == NULL ? "no such module" : "a module without it"));
}

static fsdpck_status read_document(model_reader *r, fsdpck_error *err)
{
    json_token t;
    unsigned seen = 0;
    RETURN_IF(json_expect(&r->json, JSON_OBJECT, &t, err));
    for (;;) {
        int key;
        json_token value;
        RETURN_IF(
            model_next_key(r, "description", top_rules, TOP_KEYS, NULL, &seen, &key, &value, err));
        t = value;
        if (key < 0)
            break;
        RETURN_IF(check_order(key, seen, value.offset_bytes, err));
        RETURN_IF(read_top_value(r, key, &value, err));
    }
    const bool has_list = seen & (1u << TOP_MODULES | 1u << TOP_UNITS);
    if (!has_list || !(seen & 1u << TOP_VERSION) ||
        (r->m->lists_units && seen & 1u << TOP_AUTO_WRAP))
        return FAIL_WITH(err, BADINPUT, MODEL_KEY, ("description is incomplete"),
                         (offset, t.offset_bytes),
                         (expected, "'version' and 'modules', or 'version' and 'units'"),
                         (found, has_list ? "other keys" : "neither 'modules' nor 'units'"));
    RETURN_IF(json_expect(&r->json, JSON_END, &t, err));
    if (r->m->lists_units)
        return FSDPCK_OK;
    if (r->wraps)
        RETURN_IF(find_wrapped(r, err));
    RETURN_IF(model_seal(r->m, r->wraps ? &r->wrap : NULL, err));
    RETURN_IF(model_check_kinds(r->m, err));
    return model_check_optimizers(r->m, err);
}

fsdpck_status model_read(model *m, const char *text, size_t nbytes, fsdpck_error *err)
{
    model_reader r = {.m = m};
    json_reader_init(&r.json, text, nbytes, FSDPCK_FINDING_MODEL_JSON);
    r.numbers = VEC_OF(uint64_t, m->owner);
    r.params = VEC_OF(raw_tensor, m->owner);
    r.buffers = VEC_OF(raw_tensor, m->owner);
    r.inputs = VEC_OF(raw_input, m->owner);
    r.wrap.classes = VEC_OF(uint32_t, m->owner);
    const fsdpck_status st = read_document(&r, err);
    json_reader_release(&r.json);
    text_release(&r.words);
    text_release(&r.fqn);
    text_release(&r.wrap_path);
    VEC_RELEASE_ALL(&r.numbers, &r.params, &r.buffers, &r.inputs, &r.wrap.classes);
    return st;
}
