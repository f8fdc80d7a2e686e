#include <criterion/criterion.h>
#include <string.h>

#include "select/select_rules.h"

static fsdpck_error err;
static select_rules rules;

static void setup(void)
{
    fsdpck_error_init(&err);
}

static void teardown(void)
{
    select_rules_release(&rules);
}

TestSuite(rules, .init = setup, .fini = teardown);

static void compile(const select_options *options)
{
    cr_assert_eq(select_rules_compile(options, &rules, &err), FSDPCK_OK, "%s", err.message);
}

/* The name after strip-prefix and renames; NULL and err where they fail. Static: good until the next call. */
static const char *renamed(const select_options *options, const char *name, bool *changed)
{
    static char text[256];
    text_buf b = {0};
    *changed = false;
    compile(options);
    text_puts(&b, name);
    const fsdpck_status st = select_rules_rename(&rules, &b, NULL, changed, &err);
    cr_assert_lt(b.nbytes, sizeof text);
    memcpy(text, b.text, b.nbytes);
    text[b.nbytes] = '\0';
    cr_expect_eq(b.text[b.nbytes], '\0', "the result is terminated");
    text_release(&b);
    select_rules_release(&rules);
    return st == FSDPCK_OK ? text : NULL;
}

static void expect_renamed(const char *rule, const char *name, const char *want)
{
    bool changed;
    const select_options options = {.rename = &rule, .rename_count = 1};
    const char *got = renamed(&options, name, &changed);
    cr_assert_not_null(got, "%s: %s", rule, err.message);
    cr_expect_str_eq(got, want, "%s on '%s': '%s'", rule, name, got);
}

Test(rules, keys_take_and_exclude_takes_away)
{
    static const char *const keys[] = {"layers.*", "*.bias"}, *const exclude[] = {"*.0.*"};
    const select_options options = {
        .keys = keys, .keys_count = 2, .exclude = exclude, .exclude_count = 1};
    compile(&options);
    cr_expect(select_rules_match(&rules, "layers.1.mlp.weight"), "* crosses dots");
    cr_expect(select_rules_match(&rules, "head.bias"));
    cr_expect_not(select_rules_match(&rules, "head.weight"));
    cr_expect_not(select_rules_match(&rules, "layers.0.weight"));
    cr_expect_eq(select_rules_check_used(&rules, &err), FSDPCK_OK);
}

Test(rules, without_keys_everything_is_taken)
{
    const select_options options = {0};
    compile(&options);
    cr_expect(select_rules_match(&rules, ""));
    cr_expect(select_rules_match(&rules, "any.thing"));
    cr_expect_eq(select_rules_check_used(&rules, &err), FSDPCK_OK);
}

Test(rules, a_word_that_matches_nothing_is_named)
{
    static const char *const keys[] = {"a", "b"}, *const exclude[] = {"a"};
    const select_options options = {
        .keys = keys, .keys_count = 2, .exclude = exclude, .exclude_count = 1};
    compile(&options);
    cr_expect(select_rules_match(&rules, "b"));
    cr_expect_eq(select_rules_check_used(&rules, &err), FSDPCK_USAGE);
    cr_expect_not_null(strstr(err.message, "--keys 'a'"), "%s", err.message);
    cr_expect_not(select_rules_match(&rules, "a"));
    cr_expect_eq(select_rules_check_used(&rules, &err), FSDPCK_OK);
}

Test(rules, what_keys_do_not_take_is_not_excluded)
{
    static const char *const keys[] = {"a*"}, *const exclude[] = {"b*"};
    const select_options options = {
        .keys = keys, .keys_count = 1, .exclude = exclude, .exclude_count = 1};
    compile(&options);
    cr_expect(select_rules_match(&rules, "a1"));
    cr_expect_not(select_rules_match(&rules, "b1"));
    cr_expect_eq(select_rules_check_used(&rules, &err), FSDPCK_USAGE);
    cr_expect_not_null(strstr(err.message, "--exclude 'b*'"), "%s", err.message);
}

Test(rules, renames_are_those_of_sed)
{
    expect_renamed("s/a/b/", "aaa", "baa");
    expect_renamed("s/a/b/g", "aaa", "bbb");
    expect_renamed("s/A/b/i", "aaa", "baa");
    expect_renamed("s/A/b/gi", "aAa", "bbb");
    expect_renamed("s/x/b/", "aaa", "aaa");
    expect_renamed("s|a.b|c|", "x/a.b", "x/c");
    expect_renamed("s/a\\/b/c/", "a/b", "c");
    expect_renamed("s/^layers\\.(\\d+)\\./h.\\1.x./", "layers.12.w", "h.12.x.w");
    expect_renamed("s/(a)(b)/\\2\\1/", "ab", "ba");
    expect_renamed("s/b/[&]/", "abc", "a[b]c");
    expect_renamed("s/b/\\&/", "abc", "a&c");
    expect_renamed("s/b/$0\\\\/", "abc", "a$0\\c");
    expect_renamed("s/b//", "abc", "ac");
    expect_renamed("s/(?<=a)b(?!d)/X/", "abc", "aXc");
    expect_renamed("s/^/model./", "w", "model.w");
}

/* The name and the marks after a rule. */
static void expect_marked(const char *rule, const char *name, const char *marks, const char *want,
                          const char *want_marks)
{
    const select_options options = {.rename = &rule, .rename_count = 1};
    text_buf b = {0}, m = {0};
    bool changed = false;
    compile(&options);
    text_puts(&b, name);
    text_puts(&m, marks);
    cr_assert_eq(select_rules_rename(&rules, &b, &m, &changed, &err), FSDPCK_OK, "%s", err.message);
    cr_expect_str_eq(b.text, want, "%s on '%s': '%s'", rule, name, b.text);
    cr_expect_str_eq(m.text, want_marks, "%s on '%s': '%s'", rule, name, m.text);
    const fsdpck_status st = select_rules_check_used(&rules, &err);
    cr_expect_eq(st, strcmp(name, want) == 0 ? FSDPCK_USAGE : FSDPCK_OK, "%s", err.message);
    text_release(&b);
    text_release(&m);
    select_rules_release(&rules);
}

Test(rules, structure_is_not_renamed)
{
    static const char name[] = "opt.state.0.a", marks[] = "fff.kkkkk.n.k";
    expect_marked("s/0/7/", name, marks, name, marks);
    expect_marked("s/\\.0\\./.7./", name, marks, name, marks);
    expect_marked("s/.0//", name, marks, name, marks);
    expect_marked("s/state/x/", name, marks, name, marks);
    expect_marked("s/^opt.state/state.opt/", name, marks, name, marks);
    expect_marked("s/opt./o/", name, marks, name, marks);
    expect_marked("s/$/b/", name, marks, name, marks);
    expect_marked("s/.*/x/", name, marks, name, marks);
    expect_marked("s/^opt/o/", name, marks, "o.state.0.a", "f.kkkkk.n.k");
    expect_marked("s/^opt\\.//", name, marks, "state.0.a", "kkkkk.n.k");
    expect_marked("s/^opt.state/o.state/", name, marks, "o.state.0.a", "f.kkkkk.n.k");
    expect_marked("s/^/x./", name, marks, "x.opt.state.0.a", "fffff.kkkkk.n.k");
    expect_marked("s/^/x./", "0.a", "i.f", "x.0.a", "f.i.f");
    expect_marked("s/^/x/", "0.a", "i.f", "0.a", "i.f");
    expect_marked("s/a/b/", "a.a.a", "k.f.f", "a.b.a", "k.f.f");
    expect_marked("s/a/bb/g", "a.a.a", "k.f.k", "a.bb.a", "k.ff.k");
    expect_marked("s/w/w.x/", "s.w.e", "k,f,k", "s.w.x.e", "k,fff,k");
    expect_marked("s/.w/x/", "s.w.e", "k,f,k", "s.w.e", "k,f,k");
    expect_marked("s/1/2/", "s.10.e", "ffddff", "s.10.e", "ffddff");
    expect_marked("s/s.1/t/", "s.1.e", "ffdff", "t.e", "fff");
}

Test(rules, a_long_result_is_grown_for)
{
    char rule[600], want[1200];
    memset(rule, 'x', sizeof rule);
    memcpy(rule, "s/a/", 4);
    memcpy(rule + 500, "/g", 3);
    memset(want, 'x', sizeof want);
    want[2 * 496] = '\0';
    const char *word = rule;
    const select_options options = {.rename = &word, .rename_count = 1};
    text_buf b = {0};
    bool changed = false;
    compile(&options);
    text_puts(&b, "aa");
    cr_assert_eq(select_rules_rename(&rules, &b, NULL, &changed, &err), FSDPCK_OK, "%s",
                 err.message);
    cr_expect(changed);
    cr_expect_str_eq(b.text, want);
    text_release(&b);
}

Test(rules, prefixes_go_first_then_renames_in_order)
{
    static const char *const strip[] = {"model.", "net."}, *const rename[] = {"s/a/b/", "s/b/c/"};
    const select_options options = {
        .strip_prefix = strip, .strip_prefix_count = 2, .rename = rename, .rename_count = 2};
    bool changed;
    cr_expect_str_eq(renamed(&options, "model.net.a", &changed), "c");
    cr_expect(changed);
    cr_expect_str_eq(renamed(&options, "net.model.x", &changed), "model.x", "each once, in order");
    cr_expect_str_eq(renamed(&options, "model.", &changed), "model.", "nothing would be left");
    cr_expect_not(changed);
    cr_expect_str_eq(renamed(&options, "x", &changed), "x");
    cr_expect_not(changed);
}

Test(rules, a_bad_rename_is_a_usage_error)
{
    static const char *const bad[] = {"",        "s",      "x/a/b/",    "s/a/b",   "s/a",
                                      "s/a/b/q", "s/(/b/", "s\\a\\b\\", "s/a/\\3/"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const select_options options = {.rename = &bad[i], .rename_count = 1};
        fsdpck_status st = select_rules_compile(&options, &rules, &err);
        if (st == FSDPCK_OK) {
            text_buf b = {0};
            bool changed;
            text_puts(&b, "a");
            st = select_rules_rename(&rules, &b, NULL, &changed, &err);
            text_release(&b);
            select_rules_release(&rules);
        }
        cr_expect_eq(st, FSDPCK_USAGE, "'%s'", bad[i]);
        cr_expect_not_null(strstr(err.message, "--rename"), "%s", err.message);
    }
}

Test(rules, an_endless_match_is_refused)
{
    static const char *const rule[] = {"s/^(a+)+$/x/"};
    const select_options options = {.rename = rule, .rename_count = 1};
    text_buf b = {0};
    bool changed;
    compile(&options);
    text_puts(&b, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!");
    cr_expect_eq(select_rules_rename(&rules, &b, NULL, &changed, &err), FSDPCK_USAGE);
    text_release(&b);
}

Test(rules, a_plain_dtype_casts_the_models_usual_floats)
{
    static const char *const word[] = {"bf16"};
    const select_options options = {.dtype = word, .dtype_count = 1};
    compile(&options);
    cr_expect_eq(select_rules_cast(&rules, "w", DTYPE_INT64, true), DTYPE_INT64);
    cr_expect_eq(select_rules_cast(&rules, "w", DTYPE_COMPLEX64, true), DTYPE_COMPLEX64);
    cr_expect_eq(select_rules_cast(&rules, "w", DTYPE_FLOAT8_E4M3FN, true), DTYPE_FLOAT8_E4M3FN);
    cr_expect_eq(select_rules_cast(&rules, "w", DTYPE_FLOAT32, false), DTYPE_FLOAT32);
    cr_expect_eq(select_rules_check_used(&rules, &err), FSDPCK_USAGE);
    cr_expect_eq(select_rules_cast(&rules, "w", DTYPE_FLOAT32, true), DTYPE_BFLOAT16);
    cr_expect_eq(select_rules_cast(&rules, "w", DTYPE_FLOAT64, true), DTYPE_BFLOAT16);
    cr_expect_eq(select_rules_check_used(&rules, &err), FSDPCK_OK);
}

Test(rules, a_glob_casts_any_floating_tensor_and_the_last_word_wins)
{
    static const char *const list[] = {"bf16", "*norm*=fp32", "a=b=float16"};
    const select_options options = {.dtype = list, .dtype_count = 3};
    compile(&options);
    cr_expect_eq(select_rules_cast(&rules, "l.norm.w", DTYPE_BFLOAT16, true), DTYPE_FLOAT32);
    cr_expect_eq(select_rules_cast(&rules, "l.norm.w", DTYPE_FLOAT8_E5M2, false), DTYPE_FLOAT32);
    cr_expect_eq(select_rules_cast(&rules, "l.norm.ids", DTYPE_INT32, true), DTYPE_INT32);
    cr_expect_eq(select_rules_cast(&rules, "a=b", DTYPE_FLOAT64, false), DTYPE_FLOAT16);
    cr_expect_eq(select_rules_cast(&rules, "other", DTYPE_FLOAT16, true), DTYPE_BFLOAT16);
    cr_expect_eq(select_rules_check_used(&rules, &err), FSDPCK_OK);
}

Test(rules, only_floating_dtypes_can_be_asked_for)
{
    static const char *const bad[] = {"int8", "bool",       "complex64",       "",
                                      "*=",   "w=nonsense", "float4_e2m1fn_x2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const select_options options = {.dtype = &bad[i], .dtype_count = 1};
        cr_expect_eq(select_rules_compile(&options, &rules, &err), FSDPCK_USAGE, "'%s'", bad[i]);
    }
}
