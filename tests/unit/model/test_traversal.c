#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"

/* A tree in few words: `path:keys` where F is FSDP, S fully_shard, R replicate, I ignored, L a
 * local group, and `name` or `name=fqn` its parameters of 2 x 3; `+name` is flattened by the unit of
 * this name; `path~other` registers other again. */
static void put_param(text_buf *out, const char *word)
{
    const char *flattened = word[0] == '+' ? ", \"flattened\": true" : "";
    word += word[0] == '+';
    const char *tie = strchr(word, '=');
    const int n = tie != NULL ? (int)(tie - word) : (int)strlen(word);
    if (tie != NULL)
        text_printf(out, "{\"name\": \"%.*s\", \"same_as\": \"%s\"%s}", n, word, tie + 1,
                    flattened);
    else if (word[0] == '!')
        text_printf(out,
                    "{\"name\": \"%s\", \"shape\": [2, 3], \"dtype\": \"float32\", "
                    "\"ignored\": true}",
                    word + 1);
    else
        text_printf(out, "{\"name\": \"%s\", \"shape\": [2, 3], \"dtype\": \"float32\"%s}", word,
                    flattened);
}

static void put_keys(text_buf *out, const char *keys, bool orig)
{
    static const struct {
        char key;
        const char *text;
    } table[] = {{'R', ", \"replicate\": true"},
                 {'I', ", \"ignored\": true"},
                 {'L', ", \"local_group\": true"},
                 {'S', ", \"fully_shard\": {}"}};
    for (; *keys != '\0'; keys++) {
        if (*keys == 'F')
            text_printf(out, ", \"fsdp\": {\"use_orig_params\": %s}", orig ? "true" : "false");
        for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
            if (table[i].key == *keys)
                text_puts(out, table[i].text);
        }
    }
}

static void put_module(text_buf *out, char *word, bool orig)
{
    char *again = strchr(word, '~');
    char *rest = NULL;
    if (again != NULL) {
        *again = '\0';
        text_printf(out, "{\"name\": \"%s\", \"same_as\": \"%s\"}", word, again + 1);
        return;
    }
    char *keys = strchr(word, ':');
    *keys++ = '\0';
    char *params = strchr(keys, '/');
    if (params != NULL)
        *params++ = '\0';
    text_printf(out, "{\"name\": \"%s\"", word);
    put_keys(out, keys, orig);
    text_puts(out, ", \"params\": [");
    bool first = true;
    for (char *p = params == NULL ? NULL : strtok_r(params, ",", &rest); p != NULL;
         p = strtok_r(NULL, ",", &rest)) {
        text_puts(out, first ? "" : ", ");
        put_param(out, p);
        first = false;
    }
    text_puts(out, "]}");
}

static budget memory;

static void read_tree(model *m, const char *tree, bool orig)
{
    char words[1024];
    char *rest = NULL;
    text_buf text = {0};
    fsdpck_error err;
    fsdpck_error_init(&err);
    snprintf(words, sizeof words, "%s", tree);
    text_puts(&text, "{\"version\": 1, \"world_size\": 4, \"modules\": [");
    bool first = true;
    for (char *w = strtok_r(words, " ", &rest); w != NULL; w = strtok_r(NULL, " ", &rest)) {
        text_puts(&text, first ? "" : ", ");
        put_module(&text, w, orig);
        first = false;
    }
    text_puts(&text, "]}");
    budget_init(&memory, (uint64_t)64 << 20, "metadata", NULL);
    model_init(m, &memory);
    cr_assert_eq(model_read(m, text.text, text.nbytes, &err), FSDPCK_OK, "%s: %s (%s)", err.message,
                 text.text, err.found);
    text_release(&text);
}

/* `prefix(params; shared->primary)` of each unit. */
static void expect_units(const char *tree, bool orig, const char *want)
{
    model m;
    unit_list units;
    fsdpck_error err;
    text_buf got = {0};
    read_tree(&m, tree, orig);
    unit_list_init(&units, &memory);
    fsdpck_error_init(&err);
    cr_assert_eq(model_find_units(&m, &(model_ranks){0}, &units, &err), FSDPCK_OK, "%s: %s", tree,
                 err.message);
    text_puts(&got, "");
    for (uint32_t i = 0; i < unit_count(&units); i++) {
        const unit *u = unit_at(&units, i);
        text_printf(&got, "%s%s%s(", i > 0 ? " " : "", unit_name(&units, u->prefix, NULL),
                    u->world_size == 1 ? "!" : "");
        for (uint32_t k = 0; k < u->nparams; k++)
            text_printf(&got, "%s%s", k > 0 ? "," : "",
                        unit_name(&units, unit_param_at(&units, u, k)->fqn, NULL));
        for (uint32_t k = 0; k < u->nshared; k++)
            text_printf(&got, ";%s->%s", unit_name(&units, unit_shared_at(&units, u, k)->fqn, NULL),
                        unit_name(&units, unit_shared_at(&units, u, k)->same_as, NULL));
        text_puts(&got, ")");
    }
    cr_expect_str_eq(got.text, want, "%s: %s", tree, got.text);
    text_release(&got);
    unit_list_release(&units);
    model_release(&m);
    cr_expect_eq(memory.used_bytes, 0);
}

static void expect_groups(const char *tree, const char *want)
{
    model m;
    sharded_list groups;
    fsdpck_error err;
    text_buf got = {0};
    read_tree(&m, tree, false);
    sharded_list_init(&groups, &memory);
    fsdpck_error_init(&err);
    cr_assert_eq(model_find_fully_sharded(&m, &groups, &err), FSDPCK_OK, "%s: %s", tree,
                 err.message);
    text_puts(&got, "");
    for (size_t i = 0; i < groups.units.count; i++) {
        const sharded_unit *u = VEC_AT(&groups.units, sharded_unit, i);
        text_printf(&got, "%s%s(", i > 0 ? " " : "",
                    model_name(&m, model_module_at(&m, u->module)->name, NULL));
        for (uint32_t k = 0; k < u->nparams; k++) {
            const uint32_t p = *VEC_AT(&groups.params, uint32_t, u->first_param + k);
            text_printf(&got, "%s%s", k > 0 ? "," : "",
                        model_name(&m, model_param_at(&m, p)->name, NULL));
        }
        text_puts(&got, ")");
    }
    cr_expect_str_eq(got.text, want, "%s: %s", tree, got.text);
    text_release(&got);
    sharded_list_release(&groups);
    model_release(&m);
    cr_expect_eq(memory.used_bytes, 0);
}

Test(traversal, units_stand_left_to_right_parents_first)
{
    expect_units(":F/w s1:F/w s2:F/w s2.ss:F/w", false, "(w) s1(s1.w) s2(s2.w) s2.ss(s2.ss.w)");
    expect_units(": s1:F s1.a:/w,b s2:F/w s2.ss:/w", true, "s1(s1.a.w,s1.a.b) s2(s2.w,s2.ss.w)");
}

Test(traversal, a_unit_without_parameters_of_its_own_is_none)
{
    expect_units(":F a:F/w b:F b.c:F/w", false, "a(a.w) b.c(b.c.w)");
}

/* Orders of torch 2.15: interop case model_tree_flat. */
Test(traversal, a_unit_that_was_wrapped_first_has_a_tied_parameter)
{
    expect_units(":F a:F/w,v b:F/w=a.w", true, "a(a.w,a.v;b.w->a.w)");
    expect_units(":F a:F/w,v b:F/+w=a.w", true, "a(a.v) b(b.w;a.w->b.w)");
    expect_units(":F a:F/w,v b:F/+w=a.w", false, "a(a.w,a.v) b(b.w)");
    expect_units(":F a:F/+w,v b:F/w=a.w", true, "a(a.w,a.v;b.w->a.w)");
    expect_units(":F a:F/w,v a.c:F/u=a.w b:F/w=a.w,+u=a.w", true,
                 "a(a.v) b(b.w;a.w->b.w;a.c.u->b.w;b.u->b.w)");
    expect_units(":F/w a:I/+w=w", true, "");
    expect_groups(":S a:S/w,v b:S/+w=a.w", "a(a.w,a.v) b(b.w)");
}

Test(traversal, replicate_is_not_entered)
{
    expect_units(":F/w r:R/w r.n:F/w r.n.m:F/w z:/w", true, "(w,z.w)");
    expect_units(":R/w a:F/w", true, "");
}

Test(traversal, ignored_modules_are_left_out_but_units_below_are_not)
{
    expect_units(":F/w i:I/w i.o:/w i.n:F/w i.n.m:/w z:/w", false, "(w,z.w) i.n(i.n.w,i.n.m.w)");
    expect_units(":F/w,!v a:/!w,b", true, "(w,a.b)");
    expect_units(":F/w i:I/v=w", true, "");
}

Test(traversal, experts_in_a_group_of_one)
{
    expect_units(":F/gate e:L e.n:F/w", false, "(gate) e.n!(e.n.w)");
    expect_units(":F/gate e:LF/w", true, "(gate) e!(e.w)");
}

Test(traversal, tied_parameters_are_flattened_once_in_a_unit)
{
    for (int orig = 0; orig < 2; orig++) {
        expect_units(":F e:/w a:/w,v=e.w h:/w=e.w", orig, "(e.w,a.w;a.v->e.w;h.w->e.w)");
        expect_units(":F a:/w,b b:/b=a.b,w", orig, "(a.w,a.b,b.w;b.b->a.b)");
    }
}

Test(traversal, ties_over_units_belong_to_the_innermost_with_original_parameters)
{
    expect_units(":F/x e:/w b:F b.h:/w=e.w b.l:/w", true, "(x) b(b.h.w,b.l.w;e.w->b.h.w)");
    expect_units(":F a:F/w b:F/w=a.w,v", true, "a(a.w;b.w->a.w) b(b.v)");
    expect_units(": e:/w b:F/w=e.w", true, "b(b.w;e.w->b.w)");
}

Test(traversal, ties_over_units_are_two_parameters_without)
{
    expect_units(":F/x e:/w b:F b.h:/w=e.w b.l:/w", false, "(x,e.w) b(b.h.w,b.l.w)");
    expect_units(":F a:F/w b:F/w=a.w,v", false, "a(a.w) b(b.w,b.v)");
    expect_units(": e:/w b:F/w=e.w", false, "b(b.w)");
}

Test(traversal, shared_modules_are_visited_once)
{
    for (int orig = 0; orig < 2; orig++) {
        expect_units(":F a: a.s:/w s~a.s b:/w", orig, "(a.s.w,b.w;s.w->a.s.w)");
        expect_units(":F/x a:F/w a.n:F/w c~a", orig, "(x) a(a.w;c.w->a.w) a.n(a.n.w;c.n.w->a.n.w)");
        expect_units(":F/x s:/w b:F/v b.t~s", orig, "(x) b(b.v,b.t.w;s.w->b.t.w)");
    }
}

Test(traversal, what_fully_shard_groups_is_in_post_order)
{
    expect_groups(":S/w a:/w a.b:/w c:S/w c.d:/w", "(a.b.w,a.w,w) c(c.d.w,c.w)");
    expect_groups(": r:R r.a:S/w b:S/w,!v d:/w", "b(b.w)");
    expect_groups(":S a:/w b~a c:/w=a.w,v", "(a.w,c.v)");
    expect_groups(":F/w a:F/w", "");
}

static void expect_refused(const char *text, const char *finding, const char *tensor)
{
    model m;
    unit_list units;
    fsdpck_error err;
    fsdpck_error_init(&err);
    budget_init(&memory, (uint64_t)64 << 20, "metadata", NULL);
    model_init(&m, &memory);
    cr_assert_eq(model_read(&m, text, strlen(text), &err), FSDPCK_OK, "%s: %s", err.message, text);
    unit_list_init(&units, &memory);
    cr_expect_eq(model_find_units(&m, &(model_ranks){0}, &units, &err), FSDPCK_BADINPUT, "%s",
                 text);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), finding, "%s: %s", err.message, text);
    cr_expect_str_eq(err.tensor, tensor, "%s: %s", err.message, text);
    cr_expect(err.expected[0] != '\0' && err.found[0] != '\0' && err.next[0] != '\0', "%s", text);
    unit_list_release(&units);
    model_release(&m);
}

Test(traversal, two_units_cannot_have_a_tied_parameter)
{
    expect_refused("{\"version\": 1, \"world_size\": 4, \"modules\": [{\"name\": \"\", \"fsdp\": "
                   "{}, \"params\": [{\"name\": "
                   "\"w\", \"shape\": [2], \"dtype\": \"float32\", \"flattened\": true}]}, "
                   "{\"name\": \"a\", \"fsdp\": {}, "
                   "\"params\": [{\"name\": \"w\", \"same_as\": \"w\", \"flattened\": true}]}]}",
                   "MODEL-TIE", "a.w");
}

Test(traversal, what_fsdp_cannot_flatten_is_refused)
{
#define UNIT(world, params)                                                                       \
    "{\"version\": 1, " world "\"modules\": [{\"name\": \"\", \"fsdp\": {}, \"params\": [" params \
    "]}]}"
#define P(name, shape, dtype, more) \
    "{\"name\": \"" name "\", \"shape\": [" shape "], \"dtype\": \"" dtype "\"" more "}"
    expect_refused(UNIT("", P("a", "2", "float32", "")), "MODEL-WORLD", "");
    expect_refused(
        "{\"version\": 1, \"world_size\": 4, \"modules\": [{\"name\": \"\"}, {\"name\": \"h\", "
        "\"fsdp\": {\"sharding_strategy\": \"HYBRID_SHARD\"}, \"params\": [" P("a", "2", "float32",
                                                                               "") "]}]}",
        "MODEL-WORLD", "h");
    expect_refused(UNIT("\"world_size\": 2, ", P("a", "2", "int64", "")), "MODEL-DTYPE", "a");
    expect_refused(UNIT("\"world_size\": 2, ", P("a", "", "float32", "")), "MODEL-SHAPE", "a");
    expect_refused(
        UNIT("\"world_size\": 2, ", P("a", "2", "float32", "") ", " P("b", "2", "float16", "")),
        "MODEL-DTYPE", "b");
    expect_refused(
        UNIT("\"world_size\": 2, ",
             P("a", "2", "float32", "") ", " P("b", "2", "float32", ", \"requires_grad\": false")),
        "MODEL-SETTINGS", "b");
}

Test(traversal, the_release_decides_alignment_name_and_order)
{
    static const struct {
        const char *torch;
        uint32_t alignment;
        bool row_major;
        const char *flat_name;
    } rows[] = {{"1.13.1", 0, true, "flat_param"},  {"2.0.1", 0, true, "_flat_param"},
                {"2.1.2", 8, true, "_flat_param"},  {"2.5.1", 8, true, "_flat_param"},
                {"2.6.0", 8, false, "_flat_param"}, {"2.15.0a0+x", 8, false, "_flat_param"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        model m;
        unit_list units;
        snprintf(
            text, sizeof text,
            "{\"version\": 1, \"torch\": \"%s\", \"world_size\": 3, \"modules\": [{\"name\": \"\", "
            "\"fsdp\": {\"use_orig_params\": true, \"param_dtype\": \"bfloat16\"}, \"params\": ["
            "{\"name\": \"w\", \"shape\": [5], \"dtype\": \"float32\"}]}]}",
            rows[i].torch);
        budget_init(&memory, (uint64_t)64 << 20, "metadata", NULL);
        model_init(&m, &memory);
        cr_assert_eq(model_read(&m, text, strlen(text), NULL), FSDPCK_OK);
        unit_list_init(&units, &memory);
        cr_assert_eq(model_find_units(&m, &(model_ranks){.world_size = 5}, &units, NULL),
                     FSDPCK_OK);
        const unit *u = unit_at(&units, 0);
        cr_expect_eq(u->alignment, rows[i].alignment, "%s", rows[i].torch);
        cr_expect_eq(u->row_major, rows[i].row_major, "%s", rows[i].torch);
        cr_expect_eq(u->world_size, 5);
        cr_expect_str_eq(unit_name(&units, u->flat_name, NULL), rows[i].flat_name);
        unit_list_release(&units);
        model_release(&m);
    }
}
