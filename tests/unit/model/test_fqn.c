#include <criterion/criterion.h>
#include <string.h>

#include "model/fqn.h"

static void expect_cleaned(const char *name, bool strip_ddp, const char *want)
{
    text_buf out = {0};
    fqn_clean(name, strlen(name), strip_ddp, &out);
    text_append(&out, "", 0);
    cr_assert_eq(text_check(&out, NULL), FSDPCK_OK);
    cr_expect_eq(out.nbytes, strlen(want), "'%s'", name);
    cr_expect(out.nbytes == 0 || memcmp(out.text, want, out.nbytes) == 0, "'%s' -> '%.*s'", name,
              (int)out.nbytes, out.text);
    text_release(&out);
}

Test(fqn, wrapper_parts_go_wherever_they_stand)
{
    expect_cleaned("_fsdp_wrapped_module.a.weight", false, "a.weight");
    expect_cleaned("a._fsdp_wrapped_module._checkpoint_wrapped_module.b._orig_mod.weight", false,
                   "a.b.weight");
    expect_cleaned("_orig_mod._orig_mod.a", false, "a");
    expect_cleaned("a._fpw_module.b", false, "a.b");
    expect_cleaned("plain.weight", false, "plain.weight");
}

Test(fqn, only_whole_parts_that_something_follows_are_wrappers)
{
    expect_cleaned("a._orig_mod", false, "a._orig_mod");
    expect_cleaned("_orig_mod", false, "_orig_mod");
    expect_cleaned("a_orig_mod.b", false, "a_orig_mod.b");
    expect_cleaned("_orig_module.b", false, "_orig_module.b");
    expect_cleaned("", false, "");
    expect_cleaned(".", false, ".");
    expect_cleaned("a..b", false, "a..b");
    expect_cleaned("a.", true, "a.");
}

Test(fqn, module_goes_once_from_the_front_and_only_where_the_caller_says_so)
{
    expect_cleaned("module.a.weight", true, "a.weight");
    expect_cleaned("module.a.weight", false, "module.a.weight");
    expect_cleaned("module.module.a", true, "module.a");
    expect_cleaned("a.module.b", true, "a.module.b");
    expect_cleaned("_orig_mod.module._fsdp_wrapped_module.a", true, "a");
    expect_cleaned("module", true, "module");
    expect_cleaned("modules.a", true, "modules.a");
}

Test(fqn, names_may_hold_any_byte)
{
    text_buf out = {0};
    fqn_clean("_orig_mod.a\0.b", 14, false, &out);
    cr_assert_eq(out.nbytes, 4);
    cr_expect_eq(memcmp(out.text, "a\0.b", 4), 0);
    text_release(&out);
}

Test(fqn, ddp_prefix_is_seen_behind_other_wrappers)
{
    static const struct {
        const char *name;
        bool has;
    } cases[] = {
        {"module.a", true},
        {"_orig_mod.module.a", true},
        {"a.module.b", false},
        {"module", false},
        {"", false},
        {"_orig_mod", false},
        {"_orig_mod.a.module", false},
        {"modulea.b", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_eq(fqn_has_ddp_prefix(cases[i].name, strlen(cases[i].name)), cases[i].has, "%s",
                     cases[i].name);
}
