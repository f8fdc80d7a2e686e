#include <criterion/criterion.h>
#include <string.h>

#include "map/map.h"

static budget memory;
static tensor_map *m;
static text_buf used;
static fsdpck_error err;

static void open_map(const char *text, const char *config)
{
    budget_init(&memory, 1 << 20, "metadata", "");
    used = (text_buf){.limit_bytes = 4096};
    fsdpck_error_init(&err);
    cr_assert(map_read(text, strlen(text), &memory, &m, &err) == FSDPCK_OK, "%s", err.message);
    cr_assert(map_read_config(m, config, strlen(config), &err) == FSDPCK_OK, "%s", err.message);
}

static void take(const char *key, uint64_t value, bool may_differ)
{
    map_take_argument(
        m, &(map_argument){
               .key = key, .key_nbytes = strlen(key), .value = value, .may_differ = may_differ});
}

/* The values of the variables, and what came from the arguments. */
static void check(const char *values, const char *from_arguments)
{
    text_buf text = {.limit_bytes = 4096};
    cr_assert(map_apply_arguments(m, &used, &err) == FSDPCK_OK, "%s", err.message);
    for (size_t i = 0; i < map_variable_count(m); i++) {
        bool is_set;
        uint64_t value;
        const char *name = map_variable(m, i, &is_set, &value);
        text_printf(&text, is_set ? "%s=%u " : "%s ", name, (unsigned)value);
    }
    cr_assert_str_eq(text.text, values);
    cr_assert_str_eq(used.text == NULL ? "" : used.text, from_arguments);
    text_release(&text);
}

static void close_map(void)
{
    text_release(&used);
    map_free(m);
}

Test(map_arguments, are_the_last_source_by_the_first_key)
{
    open_map(
        "let a = x or y\nlet b = y\nlet c = z\nlet d = v\nlet s = t or 0\nlet u = w or 0\nkeep *\n",
        "{\"z\": 5, \"v\": 9, \"t\": 7}");
    cr_assert(map_set_variable(m, "d=3", &err) == FSDPCK_OK);
    take("y", 4, false);
    take("z", 5, false);
    take("v", 8, false);
    take("t", 1, false);
    take("w", 2, false);
    take("unknown", 2, false);
    check("a b=4 c=5 d=3 s=1 u=0 ", "b=4, s=1");
    close_map();
}

Test(map_arguments, numbers_out_of_range_are_none)
{
    open_map("let a = x\nlet b = y\nlet c = z\nkeep *\n", "{}");
    take("x", 0, false);
    take("y", ((uint64_t)1 << 40) + 1, false);
    take("z", (uint64_t)1 << 31, true);
    check("a b c=2147483648 ", "c=2147483648");
    close_map();
}

Test(map_arguments, contradictions)
{
    open_map("let a = x\nlet b = y\nkeep *\n", "{\"x\": 5, \"y\": 6}");
    take("y", 7, true);
    check("a=5 b=6 ", "");
    take("x", 4, false);
    cr_assert(map_apply_arguments(m, &used, &err) == FSDPCK_BADINPUT);
    cr_assert(err.finding == FSDPCK_FINDING_MAP_ARGUMENTS);
    cr_assert_str_eq(err.message, "config.json and the arguments of the training differ in 'x'");
    close_map();
}

/* A number in a file is one of the model: neither config.json nor the user can have another. */
Test(map_arguments, of_a_file)
{
    open_map("let heads = num_attention_heads or n_heads\nlet kv = num_key_value_heads\nlet c = "
             "z\nkeep *\n",
             "{\"n_heads\": 8, \"num_key_value_heads\": 4}");
    map_argument a = {.key = "num_attention_heads",
                      .key_nbytes = strlen("num_attention_heads"),
                      .value = 8,
                      .file = "params.json"};
    map_take_argument(m, &a);
    a = (map_argument){.key = "z", .key_nbytes = 1, .value = 3, .file = "params.json"};
    map_take_argument(m, &a);
    check("heads=8 kv=4 c=3 ", "c=3");
    a = (map_argument){.key = "num_key_value_heads",
                       .key_nbytes = strlen("num_key_value_heads"),
                       .value = 2,
                       .file = "params.json"};
    map_take_argument(m, &a);
    cr_assert(map_apply_arguments(m, &used, &err) == FSDPCK_BADINPUT);
    cr_assert(err.finding == FSDPCK_FINDING_MAP_ARGUMENTS);
    cr_assert_str_eq(err.message, "config.json and params.json differ in 'num_key_value_heads'");
    cr_assert(map_set_variable(m, "kv=8", NULL) == FSDPCK_OK);
    cr_assert(map_apply_arguments(m, &used, &err) == FSDPCK_BADINPUT);
    cr_assert_str_eq(err.message, "--map-set kv=8 contradicts params.json");
    cr_assert(map_set_variable(m, "kv=2", NULL) == FSDPCK_OK);
    cr_assert(map_apply_arguments(m, &used, &err) == FSDPCK_OK);
    close_map();
}

static void take_text(const char *key, const char *text)
{
    map_take_argument_text(m, key, strlen(key), text, strlen(text));
}

Test(map_arguments, expected)
{
    open_map("expect e = true or 1.5\nexpect f = x\nkeep *\n", "{\"e\": false}");
    take_text("g", "y");
    take_text("e", "1.5");
    take_text("f", "y");
    take_text("f", "x");
    cr_assert(map_apply_arguments(m, &used, &err) == FSDPCK_OK, "%s", err.message);
    take_text("e", "");
    cr_assert(map_apply_arguments(m, &used, &err) == FSDPCK_UNSUPPORTED);
    cr_assert_str_eq(err.message, "map does not convert a model trained with e = ''");
    cr_assert_str_eq(err.expected, "e = true or 1.5");
    take_text("e", "true");
    take_text("f", "xx");
    cr_assert(map_apply_arguments(m, &used, &err) == FSDPCK_UNSUPPORTED);
    cr_assert_str_eq(err.message, "map does not convert a model trained with f = xx");
    close_map();
}

Test(map_arguments, refused)
{
    open_map("refuse r, s\nkeep *\n", "{\"r\": true}");
    take("r", 0, false);
    cr_assert(map_apply_arguments(m, &used, &err) == FSDPCK_OK);
    take("s", 1, false);
    cr_assert(map_apply_arguments(m, &used, &err) == FSDPCK_UNSUPPORTED);
    cr_assert_str_eq(err.message, "map does not convert a model trained with s");
    close_map();
}
