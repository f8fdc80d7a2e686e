/* What config_edit changes in a config.json, and that it changes nothing else. */
#include <criterion/criterion.h>
#include <string.h>

#include "run/config_edit.h"

static void expect(const char *text, config_change change, const char *wanted)
{
    fsdpck_error err;
    text_buf out = {0};
    fsdpck_error_init(&err);
    cr_assert(config_edit(text, strlen(text), &change, &out, &err) == FSDPCK_OK, "%s: %s", text,
              err.message);
    cr_assert_str_eq(out.text, wanted);
    text_release(&out);
}

static const config_change to_half = {.dtype = "float16", .was = "bfloat16"};
static const config_change plain = {.was = "bfloat16", .unquantized = true};
static const config_change both = {.dtype = "float16", .was = "bfloat16", .unquantized = true};

Test(config_edit, replaces_the_dtype)
{
    expect("{\"a\" : [1, {\"dtype\": \"bfloat16\"}],\n\"torch_dtype\" :\"bfloat16\" , \"b\":{} }\n",
           to_half,
           "{\"a\" : [1, {\"dtype\": \"bfloat16\"}],\n\"torch_dtype\" :\"float16\" , \"b\":{} }\n");
    expect("{\"dtype\":null,\"torch_dtype\":{\"x\":[]}}", to_half,
           "{\"dtype\":\"float16\",\"torch_dtype\":\"float16\"}");
    expect("{\"dtype\":\"bfloat16\"}", plain, "{\"dtype\":\"bfloat16\"}");
    expect("{\"text_config\":{\"dtype\":\"bfloat16\",\"y\":{\"dtype\":\"bfloat16\"}},\"v_config\":"
           "{\"torch_dtype\":\"float32\"},\"dtype\":\"bfloat16\"}",
           to_half,
           "{\"text_config\":{\"dtype\":\"float16\",\"y\":{\"dtype\":\"bfloat16\"}},\"v_config\":"
           "{\"torch_dtype\":\"float32\"},\"dtype\":\"float16\"}");
}

Test(config_edit, adds_the_dtype)
{
    expect("{}", to_half, "{\n  \"dtype\": \"float16\"}");
    expect("{ \"a\": 1 \n}", to_half, "{ \"a\": 1,\n  \"dtype\": \"float16\" \n}");
    expect("{}", plain, "{}");
}

Test(config_edit, omits_the_quantization)
{
    expect("{\"quantization_config\": {\"a\": [\"}\"]}}", plain, "{}");
    expect("{\"quantization_config\": {}, \"a\": 1}", plain, "{\"a\": 1}");
    expect("{\"a\": 1, \"quantization_config\": {}\n}", plain, "{\"a\": 1\n}");
    expect("{\"a\": 1, \"quantization_config\": {}, \"b\": 2}", plain, "{\"a\": 1, \"b\": 2}");
    expect("{\"a\": 1, \"quantization_config\": 1, \"quantization_config\": 2, \"b\": 2}", plain,
           "{\"a\": 1, \"b\": 2}");
    expect("{\"text_config\": {\"quantization_config\": 1}}", plain,
           "{\"text_config\": {\"quantization_config\": 1}}");
    expect("{\"a\": 1, \"quantization_config\": {}}", to_half,
           "{\"a\": 1, \"quantization_config\": {},\n  \"dtype\": \"float16\"}");
}

Test(config_edit, does_both)
{
    expect("{\"quantization_config\": {}}", both, "{\n  \"dtype\": \"float16\"}");
    expect("{\"dtype\": \"x\", \"quantization_config\": {}}", both, "{\"dtype\": \"float16\"}");
    expect("{\"a\": 1, \"quantization_config\": {} }", both,
           "{\"a\": 1,\n  \"dtype\": \"float16\" }");
    expect("{\"quantization_config\": {}, \"torch_dtype\": 1}", both,
           "{\"torch_dtype\": \"float16\"}");
}

Test(config_edit, refuses_what_is_no_object)
{
    static const char *const texts[] = {"", "[]", "{\"a\": 1", "{} 1", "{\"text_config\": {"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fsdpck_error err;
        text_buf out = {0};
        fsdpck_error_init(&err);
        cr_assert(config_edit(texts[i], strlen(texts[i]), &to_half, &out, &err) == FSDPCK_BADINPUT);
        text_release(&out);
    }
}
