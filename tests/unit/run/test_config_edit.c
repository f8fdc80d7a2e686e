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

/* Whatever the bytes: an error, or an object again. */
Test(config_edit, survives_any_text)
{
    static const char text[] =
        "{\"quantization_config\": {\"a\": [1, \"}\"]}, \"dtype\": \"bfloat16\", \"text_config\": "
        "{\"torch_dtype\": \"bfloat16\"}, \"b\": [{}], \"quantization_config\": null}";
    uint64_t state = 88172645463325252u;
    unsigned accepted = 0;
    for (unsigned i = 0; i < 100000; i++) {
        char mutant[sizeof text];
        memcpy(mutant, text, sizeof text);
        size_t nbytes = sizeof text - 1;
        for (unsigned k = 0; k < 1 + i % 3; k++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            const size_t at = state % nbytes, from = (state >> 20) % nbytes;
            const size_t n = (state >> 40) % 12;
            if (at + n < nbytes && from + n < nbytes && (state >> 50) % 2)
                memmove(mutant + at, mutant + from, n);
            else if (at + n < nbytes)
                memmove(mutant + at, mutant + at + n, nbytes - at - n), nbytes -= n;
        }
        fsdpck_error err;
        text_buf out = {0}, again = {0};
        if (config_edit(mutant, nbytes, &both, &out, &err) == FSDPCK_OK) {
            accepted++;
            cr_assert(config_edit(out.text, out.nbytes, &both, &again, &err) == FSDPCK_OK,
                      "%.*s -> %s", (int)nbytes, mutant, out.text);
            cr_assert_str_eq(again.text, out.text);
        }
        text_release(&out);
        text_release(&again);
    }
    cr_assert(accepted > 1000);
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
