#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

static budget memory;

static fsdpck_status read_text(model *m, const char *text, fsdpck_error *err)
{
    budget_init(&memory, (uint64_t)64 << 20, "metadata", NULL);
    model_init(m, &memory);
    fsdpck_error_init(err);
    return model_read(m, text, strlen(text), err);
}

#define HEAD          "{\"version\": 1, \"world_size\": 4, \"modules\": ["
#define ROOT          "{\"name\": \"\"}"
#define PARAM(n)      "{\"name\": \"" n "\", \"shape\": [2, 3], \"dtype\": \"float32\"}"
#define MODULE(n, ps) "{\"name\": \"" n "\", \"params\": [" ps "]}"

static void expect_refused(const char *text, const char *finding, const char *name, const char *at)
{
    model m;
    fsdpck_error err;
    cr_expect_eq(read_text(&m, text, &err), FSDPCK_BADINPUT, "read: %s", text);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), finding, "'%s': %s", err.message, text);
    cr_expect_str_eq(err.tensor, name, "'%s': %s", err.tensor, text);
    cr_expect(err.expected[0] != '\0' && err.found[0] != '\0', "expected, found: %s", text);
    cr_expect(err.has_offset || at == NULL, "offset: %s", text);
    if (at != NULL)
        cr_expect_eq(err.offset_bytes, (size_t)(strstr(text, at) - text), "%zu: %s",
                     (size_t)err.offset_bytes, text);
    model_release(&m);
    cr_expect_eq(memory.used_bytes, 0);
}

Test(model, a_document_that_is_no_description_is_refused)
{
    expect_refused("{\"version\": 1,}", "MODEL-JSON", "", "}");
    expect_refused("{\"version\": 2, \"modules\": []}", "MODEL-VERSION", "", "2");
    expect_refused("{\"modules\": [" ROOT "]}", "MODEL-KEY", "", "[");
    expect_refused("{\"version\": 1}", "MODEL-KEY", "", "}");
    expect_refused("{\"version\": 1, \"modules\": []}", "MODEL-KEY", "", "]");
    expect_refused("{\"version\": 1, \"version\": 1}", "MODEL-KEY", "", "\"version\": 1}");
    expect_refused("{\"version\": 1, \"colour\": 3}", "MODEL-KEY", "", "\"colour\"");
    expect_refused("{\"version\": 1, \"world_size\": \"4\"}", "MODEL-KEY", "", "\"4\"");
    expect_refused("{\"version\": 1, \"world_size\": 0}", "MODEL-KEY", "", "0");
    expect_refused("{\"version\": 1, \"world_size\": 4.5}", "MODEL-KEY", "", "4.5");
    expect_refused("{\"version\": 1, \"torch\": \"new\"}", "MODEL-KEY", "", "\"new\"");
    expect_refused("{\"version\": 1, \"modules\": [" ROOT "], \"units\": []}", "MODEL-KEY", "",
                   "[]}");
    expect_refused("{\"version\": 1, \"units\": [], \"world_size\": 4}", "MODEL-KEY", "", "4");
    expect_refused(HEAD ROOT "]} x", "MODEL-JSON", "", "x");
}

Test(model, keys_of_modules_and_tensors_are_known_single_and_typed)
{
    expect_refused(HEAD "{\"name\": \"\", \"Class\": \"x\"}]}", "MODEL-KEY", "", "\"Class\"");
    expect_refused(HEAD "{\"name\": \"\", \"ddp\": 1}]}", "MODEL-KEY", "", "1}]");
    expect_refused(HEAD "{\"name\": \"\", \"ddp\": true, \"ddp\": true}]}", "MODEL-KEY", "",
                   "\"ddp\": true}");
    expect_refused(HEAD "{\"class\": \"x\"}]}", "MODEL-KEY", "", "{\"class\"");
    expect_refused(HEAD "{\"name\": \"\", \"fsdp\": {}, \"fully_shard\": {}}]}", "MODEL-KEY", "",
                   NULL);
    expect_refused(HEAD "{\"name\": \"\", \"fsdp\": {\"sharding_strategy\": \"SOME\"}}]}",
                   "MODEL-KEY", "", "\"SOME\"");
    expect_refused(HEAD "{\"name\": \"\", \"fsdp\": {\"param_dtype\": \"half8\"}}]}", "MODEL-KEY",
                   "", "\"half8\"");
    expect_refused(HEAD ROOT ", " MODULE("a", "{\"name\": \"w\", \"dtype\": \"float32\"}") "]}",
                   "MODEL-KEY", "w", "{\"name\": \"w\"");
    expect_refused(HEAD ROOT ", " MODULE("a", "{\"name\": \"w\", \"shape\": [2]}") "]}",
                   "MODEL-KEY", "w", "{\"name\": \"w\"");
    expect_refused(HEAD ROOT ", " MODULE("a", "3") "]}", "MODEL-KEY", "a", "3]");
}

Test(model, modules_stand_below_their_parents)
{
    expect_refused(HEAD "{\"name\": \"a\"}]}", "MODEL-ORDER", "a", "{\"name\"");
    expect_refused(HEAD ROOT ", " ROOT "]}", "MODEL-ORDER", "", NULL);
    expect_refused(HEAD ROOT ", {\"name\": \"a.b\"}]}", "MODEL-ORDER", "a.b", "{\"name\": \"a.b\"");
    expect_refused(HEAD ROOT ", {\"name\": \"a\"}, {\"name\": \"b\"}, {\"name\": \"a.c\"}]}",
                   "MODEL-ORDER", "a.c", "{\"name\": \"a.c\"");
    expect_refused(HEAD ROOT ", {\"name\": \"a\"}, {\"name\": \"b\", \"same_as\": \"a\"}, "
                             "{\"name\": \"b.c\"}]}",
                   "MODEL-ORDER", "b.c", "{\"name\": \"b.c\"");
}

Test(model, names_are_clean_whole_and_single)
{
    expect_refused(HEAD ROOT ", {\"name\": \"_orig_mod\"}]}", "MODEL-NAME", "_orig_mod", NULL);
    expect_refused(HEAD ROOT ", {\"name\": \"a\"}, {\"name\": \"a.\"}]}", "MODEL-NAME", "a.", NULL);
    expect_refused(HEAD ROOT ", " MODULE("a", PARAM("w.x")) "]}", "MODEL-NAME", "a.w.x", "\"w.x\"");
    expect_refused(HEAD ROOT ", " MODULE("a", PARAM("")) "]}", "MODEL-NAME", "a.",
                   "\"\", \"shape\"");
    expect_refused(HEAD ROOT ", " MODULE("a", PARAM("w") ", " PARAM("w")) "]}", "MODEL-NAME-DUP",
                   "a.w", NULL);
    expect_refused(HEAD ROOT ", {\"name\": \"a\"}, {\"name\": \"a\"}]}", "MODEL-NAME-DUP", "a",
                   NULL);
    expect_refused(HEAD MODULE("", PARAM("a")) ", {\"name\": \"a\"}]}", "MODEL-NAME-DUP", "a",
                   NULL);
    expect_refused(
        HEAD "{\"name\": \"\", \"params\": [" PARAM("a") "], \"buffers\": [" PARAM("a") "]}]}",
        "MODEL-NAME-DUP", "a", NULL);
}

Test(model, shapes_fit)
{
    expect_refused(
        HEAD MODULE("", "{\"name\": \"w\", \"shape\": [-1], \"dtype\": \"float32\"}") "]}",
        "MODEL-SHAPE", "w", "-1");
    expect_refused(HEAD MODULE("", "{\"name\": \"w\", \"shape\": [9223372036854775807, 2], "
                                   "\"dtype\": \"float32\"}") "]}",
                   "MODEL-SHAPE", "w", "{\"name\": \"w\"");
    expect_refused(HEAD MODULE("", "{\"name\": \"w\", \"shape\": [2, 3], \"strides\": [1], "
                                   "\"dtype\": \"float32\"}") "]}",
                   "MODEL-SHAPE", "w", "{\"name\": \"w\"");
    expect_refused(HEAD MODULE("", "{\"name\": \"w\", \"shape\": [2, 3], \"shard_dim\": 2, "
                                   "\"dtype\": \"float32\"}") "]}",
                   "MODEL-SHAPE", "w", "{\"name\": \"w\"");
}

Test(model, ties_are_to_something_before_that_is_the_same)
{
#define TIED(more) \
    HEAD ROOT ", " MODULE("a", PARAM("w")) ", " MODULE("b", "{\"name\": \"w\", " more "}") "]}"
    expect_refused(TIED("\"same_as\": \"c.w\""), "MODEL-TIE", "b.w", "\"c.w\"");
    expect_refused(TIED("\"same_as\": \"b.w\""), "MODEL-TIE", "b.w", "\"b.w\"");
    expect_refused(TIED("\"same_as\": \"a.w\", \"shape\": [3, 2]"), "MODEL-TIE", "b.w", "\"a.w\"");
    expect_refused(TIED("\"same_as\": \"a.w\", \"dtype\": \"float16\""), "MODEL-TIE", "b.w",
                   "\"a.w\"");
    expect_refused(HEAD ROOT ", {\"name\": \"a\"}, {\"name\": \"a.b\", \"same_as\": \"a\"}]}",
                   "MODEL-TIE", "a.b", "\"a\"}]");
    expect_refused(HEAD ROOT ", {\"name\": \"a\", \"same_as\": \"z\"}]}", "MODEL-TIE", "a",
                   "\"z\"");
    expect_refused(HEAD ROOT ", {\"name\": \"a\"}, {\"name\": \"b\", \"same_as\": \"a\", "
                             "\"ddp\": true}]}",
                   "MODEL-KEY", "b", NULL);
}

Test(model, settings_of_one_tree_agree)
{
#define TREE(root, inner)                                              \
    HEAD "{\"name\": \"\"}, {\"name\": \"r\", \"fsdp\": {" root "}}, " \
         "{\"name\": \"r.a\", \"fsdp\": {" inner "}}, {\"name\": \"s\", \"fsdp\": {}}]}"
    expect_refused(TREE("\"use_orig_params\": true", ""), "MODEL-SETTINGS", "r.a", NULL);
    expect_refused(TREE("", "\"limit_all_gathers\": false"), "MODEL-SETTINGS", "r.a", NULL);
    model m;
    fsdpck_error err;
    const char *two_trees = TREE("\"use_orig_params\": true", "\"use_orig_params\": true");
    cr_expect_eq(read_text(&m, two_trees, &err), FSDPCK_OK, "%s", err.message);
    model_release(&m);
}

Test(model, auto_wrap_is_one_policy_of_an_fsdp_call)
{
#define WRAP(policy, inner)                                                                        \
    "{\"version\": 1, \"auto_wrap\": {" policy "}, \"modules\": [{\"name\": \"\", \"fsdp\": {}}, " \
    "{\"name\": \"a\"" inner "}]}"
    expect_refused(WRAP("\"module\": \"\"", ""), "MODEL-KEY", "", "{\"module\"");
    expect_refused(WRAP("\"classes\": [], \"min_numel\": 3", ""), "MODEL-KEY", "", NULL);
    expect_refused(WRAP("\"classes\": [3]", ""), "MODEL-KEY", "", "3]");
    expect_refused(WRAP("\"classes\": [], \"module\": \"a\"", ""), "MODEL-WRAP", "a", NULL);
    expect_refused(WRAP("\"classes\": [], \"module\": \"b\"", ""), "MODEL-WRAP", "b", NULL);
    expect_refused(WRAP("\"classes\": []", ", \"fsdp\": {}"), "MODEL-WRAP", "a", NULL);
}

static uint32_t param_named(const model *m, const char *fqn)
{
    return model_find_param(m, fqn, strlen(fqn));
}

Test(model, keys_come_in_any_order_and_a_second_registration_repeats_all)
{
    model m;
    fsdpck_error err;
    const char *text = HEAD ROOT
        ", {\"params\": [{\"strides\": [1, 2], \"dtype\": \"bfloat16\", \"shape\": [2, 3], "
        "\"requires_grad\": false, \"name\": \"w\"}], \"class\": \"A\", \"name\": \"a\"}, "
        "{\"name\": \"a.n\", \"buffers\": [{\"name\": \"b\", \"shape\": [], \"dtype\": \"int64\", "
        "\"persistent\": false}]}, {\"name\": \"a.m\", \"same_as\": \"a.n\"}, "
        "{\"name\": \"z\", \"same_as\": \"a\"}, {\"name\": \"t\", \"params\": ["
        "{\"name\": \"w\", \"same_as\": \"z.w\"}]}]}";
    cr_assert_eq(read_text(&m, text, &err), FSDPCK_OK, "%s '%s' '%s'", err.message, err.expected,
                 err.found);
    cr_expect_eq(model_module_count(&m), 8);
    cr_expect_eq(model_find_module(&m, "z.m", 3), 6);
    cr_expect_eq(model_module_at(&m, 6)->same_as, 2);
    cr_expect_eq(model_module_at(&m, 4)->next, 7);
    cr_expect_eq(model_buffer_count(&m), 4);
    const uint32_t b = model_find_buffer(&m, "z.m.b", 5);
    cr_expect_eq(model_buffer_at(&m, b)->same_as, 0);
    cr_expect(!model_buffer_at(&m, b)->persistent);
    const uint32_t names[] = {param_named(&m, "a.w"), param_named(&m, "z.w"),
                              param_named(&m, "t.w")};
    for (unsigned i = 0; i < 3; i++) {
        const model_param *p = model_param_at(&m, names[i]);
        cr_expect_eq(model_param_first(&m, names[i]), names[0]);
        cr_expect_eq(p->next_name, i < 2 ? names[i + 1] : MODEL_NONE);
        cr_expect_eq(p->dtype, DTYPE_BFLOAT16);
        cr_expect_eq(model_strides(&m, p)[1], 2);
        cr_expect_eq(model_shape(&m, p->shape_at)[1], 3);
    }
    cr_expect_eq(m.nelems, 6);
    cr_expect_eq(param_named(&m, "z.m.b"), MODEL_NONE);
    model_release(&m);
}

/* Each level registers the one before twice: 2^40 names. */
Test(model, repeated_modules_end_at_the_memory_budget)
{
    text_buf text = {0};
    text_puts(&text, HEAD ROOT ", {\"name\": \"m0\"}");
    for (int i = 1; i < 40; i++)
        text_printf(&text,
                    ", {\"name\": \"m%d\"}, {\"name\": \"m%d.a\", \"same_as\": \"m%d\"}, "
                    "{\"name\": \"m%d.b\", \"same_as\": \"m%d\"}",
                    i, i, i - 1, i, i - 1);
    text_puts(&text, "]}");
    model m;
    fsdpck_error err;
    cr_expect_eq(read_text(&m, text.text, &err), FSDPCK_LIMIT);
    model_release(&m);
    text_release(&text);
}

/* The text between .EX and .EE of the manual page. */
static char *example_of_manual(void)
{
    char path[4096];
    static char text[16384];
    char line[1024];
    bool inside = false;
    const char *fixtures = getenv("FIXTURES");
    cr_assert_not_null(fixtures);
    snprintf(path, sizeof path, "%s/../../man/fsdpck-model.5", fixtures);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    text[0] = '\0';
    while (fgets(line, sizeof line, f) != NULL && strncmp(line, ".EE", 3) != 0) {
        if (inside && strlen(text) + strlen(line) < sizeof text)
            strcat(text, line);
        inside = inside || strncmp(line, ".EX", 3) == 0;
    }
    fclose(f);
    return text;
}

Test(model, the_example_of_the_manual_is_read)
{
    model m;
    unit_list units;
    fsdpck_error err;
    cr_assert_eq(read_text(&m, example_of_manual(), &err), FSDPCK_OK, "%s: '%s' '%s'", err.message,
                 err.expected, err.found);
    unit_list_init(&units, &memory);
    cr_assert_eq(model_find_units(&m, &(model_ranks){0}, &units, &err), FSDPCK_OK, "%s",
                 err.message);
    cr_expect_eq(unit_count(&units), 3);
    cr_expect_eq(unit_at(&units, 0)->nshared, 1);
    cr_expect_eq(unit_at(&units, 1)->world_size, 4);
    unit_list_release(&units);
    model_release(&m);
}

Test(model, a_list_of_units_is_given_as_it_is_or_for_other_ranks)
{
    static const char text[] =
        "{\"version\": 1, \"world_size\": 4, \"units\": [{\"prefix\": \"a\", \"dtype\": "
        "\"float32\", "
        "\"params\": [{\"fqn\": \"a.w\", \"shape\": [5]}]}, {\"prefix\": \"b\", \"world_size\": 2, "
        "\"dtype\": \"float32\", \"params\": [{\"fqn\": \"b.w\", \"shape\": [3]}], \"shared\": "
        "[{\"fqn\": \"c.w\", \"same_as\": \"a.w\"}]}]}";
    for (uint32_t world_size = 0; world_size < 4; world_size += 3) {
        model m;
        unit_list units;
        fsdpck_error err;
        cr_assert_eq(read_text(&m, text, &err), FSDPCK_OK, "%s", err.message);
        cr_expect(m.lists_units);
        unit_list_init(&units, &memory);
        cr_assert_eq(model_find_units(&m, &(model_ranks){.world_size = world_size}, &units, &err),
                     FSDPCK_OK, "%s", err.message);
        cr_assert_eq(unit_count(&units), 2);
        cr_expect_eq(unit_at(&units, 0)->world_size, world_size == 0 ? 4 : 3);
        cr_expect_eq(unit_at(&units, 1)->world_size, world_size == 0 ? 2 : 3);
        cr_expect_eq(unit_at(&units, 1)->nshared, 1);
        unit_list_release(&units);
        model_release(&m);
    }
}
