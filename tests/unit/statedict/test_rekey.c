#include "tests/unit/statedict/rekey_case.h"

Test(rekey, one_group_by_order)
{
    given(ADAM "in order; optim/param_groups/@0/lr = 3;"
               "optim/param_groups/@0/params = [0 1 2 3]");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/emb.weight/step");
    expect_tensor("optim/state/emb.weight/exp_avg");
    expect_tensor("optim/state/norm.scale/exp_avg");
    expect_tensor("optim/state/head.weight/exp_avg");
    expect_object("optim/param_groups/@0/params",
                  "['emb.weight', 'norm.weight', 'norm.scale', 'head.weight']");
    expect_object("optim/param_groups/@0/lr", "3");
    must_run(OPTIM_KEYS_ID);
    expect_tensor("optim/state/#3/exp_avg");
    expect_object("optim/param_groups/@0/params", "[0, 1, 2, 3]");
}

Test(rekey, groups_in_the_order_of_the_model)
{
    given(ADAM "in order; optim/param_groups/@1/params = [2 3];"
               "optim/param_groups/@0/params = [0 1]");
    catalogue_object(&s->cat, 1)->content = list_of("0 3");
    catalogue_object(&s->cat, 0)->content = list_of("1 2");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/head.weight/exp_avg");
    expect_object("optim/param_groups/@0/params", "['emb.weight', 'head.weight']");
    expect_object("optim/param_groups/@1/params", "['norm.weight', 'norm.scale']");
}

/* A number that Adafactor's factors leave two parameters for has one once another took its own. */
Test(rekey, what_is_left_is_settled)
{
    given("b 6x5; a 6x3; c; optim/state/#0/exp_avg; optim/state/#1/row_var 6x1;"
          "optim/state/#2/exp_avg 6x5; optim/param_groups/@0/params = [0 1 2]");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/c/exp_avg");
    expect_tensor("optim/state/a/row_var");
    expect_tensor("optim/state/b/exp_avg");
}

/* Shapes settle whatever the order is. */
Test(rekey, another_order)
{
    given("a 3; b 4; unused 9; optim/state/#0/exp_avg 4; optim/state/#1/exp_avg 3;"
          "optim/param_groups/@0/params = [0 1]");
    must_run(OPTIM_KEYS_NAME);
    expect_object("optim/param_groups/@0/params", "['b', 'a']");
}

/* SGD without momentum: one group has all, so its members are known. */
Test(rekey, without_state_one_group_of_all_is_settled)
{
    given("a 3; b 3; optim/state/#0/momentum_buffer = none; optim/param_groups/@0/params = [0 1]");
    must_run(OPTIM_KEYS_NAME);
    expect_object("optim/param_groups/@0/params", "['a', 'b']");
}

static void describe_groups(const char *key, const char *first, const char *second)
{
    cr_assert_eq(optim_groups_add(&s->groups, key, strlen(key), NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_open(&s->groups, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, first, strlen(first), NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, second, strlen(second), NULL), FSDPCK_OK);
    s->order.groups = &s->groups;
}

Test(rekey, a_description_of_other_shapes_is_refused)
{
    given(PAIR);
    describe_groups("optim", "b", "a");
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, a_description_against_given_names_is_refused)
{
    given(PAIR "optim/param_groups/@0/param_names = [a b]");
    describe_groups("optim", "b", "a");
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

/* A list under another key is no list of one of several optimizers. */
Test(rekey, one_list_for_two_optimizers_is_not_taken)
{
    given("a 3; b 3; one/state/#0/exp_avg 3; one/state/#1/exp_avg 3;"
          "two/state/#0/exp_avg 3; two/state/#1/exp_avg 3;"
          "one/param_groups/@0/params = [0 1]; two/param_groups/@0/params = [0 1]");
    describe_groups("any", "b", "a");
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, description_settles_it)
{
    given(ADAM "optim/param_groups/@0/params = [0 1]; optim/param_groups/@1/params = [2 3]");
    cr_assert_eq(optim_groups_add(&s->groups, "optim", 5, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_open(&s->groups, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, "emb.weight", 10, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, "norm.scale", 10, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_open(&s->groups, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, "norm.weight", 11, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, "head.weight", 11, NULL), FSDPCK_OK);
    s->order.groups = &s->groups;
    must_run(OPTIM_KEYS_NAME);
    expect_object("optim/param_groups/@0/params", "['emb.weight', 'norm.scale']");
    must_run(OPTIM_KEYS_ID); /* in the order of the description, not of the model */
    expect_object("optim/param_groups/@0/params", "[0, 1]");
}

Test(rekey, given_names_come_first)
{
    given("state/#0/exp_avg 4; state/#1/exp_avg 4; param_groups/@0/params = [0 1];"
          "param_groups/@0/param_names = [_orig_mod.b a]");
    must_run(OPTIM_KEYS_NAME);
    expect_object("param_groups/@0/params", "['b', 'a']");
    expect_tensor("state/b/exp_avg");
}

Test(rekey, frozen_without_state_and_rows)
{
    given("a 6x3; frozen 9x9; b 3x8; optim/state/#0/row_var 6x1;"
          "optim/state/#0/col_var 1x3; optim/state/#2/exp_avg_sq_row 3;"
          "optim/param_groups/@0/params = [0 1 2]");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/a/row_var");
    expect_tensor("optim/state/b/exp_avg_sq_row");
}

/* --- several optimizers --- */

Test(rekey, names_of_both_optimizers_are_believed)
{
    given(TWO_OPTIMIZERS
          "one/param_groups/@0/param_names = [pi]; two/param_groups/@0/param_names = [pi]");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("one/state/pi/exp_avg");
    expect_tensor("two/state/pi/exp_avg");
}

Test(rekey, the_order_is_that_of_the_model_alone)
{
    given("x 5; outside criterion.log_vars 5; optim/state/#0/exp_avg 5;"
          "optim/param_groups/@0/params = [0]; in order");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/x/exp_avg");
}

static bool is_open(const char *name)
{
    const uint32_t tensor = catalogue_find(&s->cat, name, strlen(name));
    cr_assert_neq(tensor, CAT_NONE);
    return (catalogue_tensor(&s->cat, tensor)->flags & CAT_TENSOR_PARAM_OPEN) != 0;
}

static void learn(void)
{
    const logger log = {0};
    cr_assert_eq(catalogue_seal(&s->cat, NULL), FSDPCK_OK);
    cr_assert_eq(rekey_infer_params(&s->cat, &s->order, &log, NULL), FSDPCK_OK);
}

Test(rekey, what_two_optimizers_could_mean_stays_open)
{
    given(TWO_OPTIMIZERS);
    learn();
    cr_expect(is_open("one.state.0.exp_avg"));
    cr_expect(is_open("two.state.0.exp_avg"));
}

Test(rekey, groups_that_leave_the_order_open_stay_open)
{
    given(ADAM "optim/param_groups/@0/params = [0 1]; optim/param_groups/@1/params = [2 3];"
               "in order");
    learn();
    cr_expect_not(is_open("optim.state.0.exp_avg"));
    cr_expect(is_open("optim.state.1.exp_avg"));
    cr_expect(is_open("optim.state.2.exp_avg"));
}

/* Each number is in a group of its own, so that its order alone excludes no parameter. */
Test(rekey, more_numbers_than_parameters_are_refused)
{
    given("a 3; b 3; optim/state/#0/exp_avg 3; optim/state/#1/exp_avg 3;"
          "optim/state/#2/exp_avg 3; optim/param_groups/@0/params = [0];"
          "optim/param_groups/@1/params = [1]; optim/param_groups/@2/params = [2]; in order");
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, state_that_fits_nothing_stays_open)
{
    given(PAIR "optim/state/#0/exp_avg_sq 9");
    learn();
    cr_expect(is_open("optim.state.0.exp_avg"));
    cr_expect(is_open("optim.state.1.exp_avg"));
}

/* Two numbers may be the two that need a gradient, or others. */
Test(rekey, frozen_ones_of_a_description_may_be_meant)
{
    given("a 3; b 3; c 3; optim/state/#0/exp_avg 3; optim/state/#1/exp_avg 3;"
          "optim/param_groups/@0/params = [0 1]; in order");
    s->order.described = true;
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

/* --- param_names --- */

Test(rekey, given_names_of_a_wrapper_are_the_models)
{
    given(PAIR "optim/param_groups/@0/param_names = [module.a module._orig_mod.b]");
    must_run(OPTIM_KEYS_NAME);
    expect_object("optim/param_groups/@0/params", "['a', 'b']");
}

Test(rekey, given_names_of_what_is_beside_the_model_are_its_own)
{
    given(PAIR "outside critic.q 6; critic_optim/state/#0/exp_avg 6;"
               "critic_optim/param_groups/@0/params = [0];"
               "critic_optim/param_groups/@0/param_names = [q]");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("critic_optim/state/q/exp_avg");
}

Test(rekey, given_names_of_a_tie_stay)
{
    given(PAIR "tied 4");
    s->params[2].tied = true;
    s->params[2].tied_to = 1;
    given("optim/param_groups/@0/param_names = [a tied]");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/tied/exp_avg");
}

/* A tie is no second parameter of its shape. */
Test(rekey, a_tie_is_no_parameter_of_its_own)
{
    given(PAIR "tied 4");
    s->params[2].tied = true;
    s->params[2].tied_to = 1;
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/b/exp_avg");
}

/* --- names to numbers --- */

Test(rekey, sorted_names_follow_the_model)
{
    given("in order; z 3; a 4; optim/state/a/exp_avg 4; optim/state/z/exp_avg 3;"
          "optim/param_groups/@0/params = [a z]");
    must_run(OPTIM_KEYS_ID);
    expect_object("optim/param_groups/@0/params", "[0, 1]");
    char name[64];
    (void)path_of("optim/state/#0/exp_avg", name);
    const uint32_t first = catalogue_find(&s->cat, name, strlen(name));
    cr_expect_eq(catalogue_shape(&s->cat, first)[0], 3, "number 0 is the model's first");
    cr_expect_eq(s->warnings, 0);
}

Test(rekey, without_a_model_the_list_is_warned_of)
{
    given("state/a/exp_avg 4; param_groups/@0/params = [b a]");
    must_run(OPTIM_KEYS_ID);
    expect_tensor("state/#1/exp_avg");
    cr_expect_eq(s->warnings, 1);
    cr_expect_str_eq(s->finding, "OPTIM-ORDER");
}

Test(rekey, state_that_no_group_lists_keeps_its_keys)
{
    given("state/a/exp_avg 4; state/gone/exp_avg 4; param_groups/@0/params = [a]");
    must_run(OPTIM_KEYS_ID);
    expect_tensor("state/#0/exp_avg");
    expect_tensor("state/gone/exp_avg");
    cr_expect_eq(s->warnings, 1);
    cr_expect_str_eq(s->finding, "OPTIM-STRAY");
}

Test(rekey, ddp_prefix_is_seen_through)
{
    given("in order; b 3; a 4; optim/state/module.a/exp_avg 4;"
          "optim/param_groups/@0/params = [module.a module.b]");
    must_run(OPTIM_KEYS_ID);
    expect_tensor("optim/state/#1/exp_avg");
}

/* --- flattened --- */

Test(rekey, flattened_groups)
{
    given("a 3; b 4; c 5; optim/state.a.exp_avg 3; optim/state.c.exp_avg 5;"
          "optim/param_groups.a.lr = 1; optim/param_groups.b.lr = 2;"
          "optim/param_groups.c.lr = 1");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/a/exp_avg");
    expect_object("optim/param_groups/@0/params", "['a', 'c']");
    expect_object("optim/param_groups/@0/lr", "1");
    expect_object("optim/param_groups/@1/params", "['b']");
    expect_object("optim/param_groups/@1/lr", "2");
    cr_expect_str_eq(s->finding, "OPTIM-GROUPS"); /* a, b, c may have been three */
    must_run(OPTIM_KEYS_FLAT);
    expect_tensor("optim/state.c.exp_avg");
    expect_object("optim/param_groups.c.lr", "1");
    cr_expect_eq(catalogue_object_count(&s->cat), 3);
}

Test(rekey, flattened_keys_may_have_dots)
{
    given("a 3; a.b 3; optim/state.a.b.exp_avg 3; optim/state.a.exp_avg 3;"
          "optim/param_groups.a.lr = 1; optim/param_groups.a.b.lr = 1");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/a.b/exp_avg");
    expect_tensor("optim/state/a/exp_avg");
}

/* As torch: dicts below a parameter's state. */
Test(rekey, flattened_dicts_come_back)
{
    given("a 3; optim/state/a/deep/b/c 3; optim/state/a/deep/d 4; optim/state/a/exp_avg 3;"
          "optim/param_groups/@0/lr = 1; optim/param_groups/@0/params = [a]");
    must_run(OPTIM_KEYS_FLAT);
    expect_tensor("optim/state.a.deep.b.c");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/a/deep/b/c");
    expect_tensor("optim/state/a/deep/d");
    expect_tensor("optim/state/a/exp_avg");
}

/* As torch: each parameter has the names of its whole group, and they give the order of numbers. */
Test(rekey, flattened_names_are_those_of_the_group)
{
    given("a 3; b 4; optim/state/#0/exp_avg 4; optim/state/#1/exp_avg 3;"
          "optim/param_groups/@0/params = [0 1];"
          "optim/param_groups/@0/param_names = [b a]");
    must_run(OPTIM_KEYS_FLAT);
    expect_object("optim/param_groups.a.param_names", "['b', 'a']");
    expect_object("optim/param_groups.b.param_names", "['b', 'a']");
    must_run(OPTIM_KEYS_ID);
    expect_object("optim/param_groups/@0/params", "[0, 1]");
    expect_object("optim/param_groups/@0/param_names", "['b', 'a']");
    const uint32_t first = catalogue_find(&s->cat, "optim.state.0.exp_avg", 21);
    cr_assert_neq(first, CAT_NONE);
    cr_expect_eq(catalogue_shape(&s->cat, first)[0], 4, "number 0 is 'b'");
}

/* --- impossible conversions --- */

Test(rekey, too_many)
{
    value list;
    cr_assert_eq(value_new_list(&s->cat.pool, &list, NULL), FSDPCK_OK);
    for (int64_t i = 0; i <= INT64_C(1) << 22; i++)
        cr_assert_eq(value_append(&s->cat.pool, list, number(i), NULL), FSDPCK_OK);
    add_object("param_groups/@0/params", list);
    fsdpck_error err;
    cr_expect_eq(run(OPTIM_KEYS_NAME, &err), FSDPCK_LIMIT);
}

Test(rekey, learning_changes_no_name)
{
    given(ADAM "optim/param_groups/@0/params = [0 1 2 3]");
    cr_assert_eq(catalogue_seal(&s->cat, NULL), FSDPCK_OK);
    const logger log = {0};
    cr_assert_eq(rekey_infer_params(&s->cat, &s->order, &log, NULL), FSDPCK_OK);
    expect_tensor("optim/state/#3/exp_avg");
    const uint32_t tensor = catalogue_find(&s->cat, "optim.state.3.exp_avg", 21);
    cr_expect_str_eq(catalogue_name(&s->cat, catalogue_tensor(&s->cat, tensor)->param),
                     "head.weight");
    cr_expect_eq(catalogue_tensor(&s->cat, tensor)->flags & CAT_TENSOR_PARAM_OPEN, 0);
    const uint32_t open = catalogue_find(&s->cat, "optim.state.1.exp_avg", 21);
    cr_expect_neq(catalogue_tensor(&s->cat, open)->flags & CAT_TENSOR_PARAM_OPEN, 0);
}

/* --- names as the model's tensors have them --- */

/* A parameter whose tensor in the checkpoint has a wrapper's prefix. */
static void saved_as(const char *fqn, const char *tensor)
{
    for (uint32_t i = 0; i < s->order.count; i++)
        if (strcmp(s->fqns[i], fqn) == 0) {
            s->params[i].saved = catalogue_find(&s->cat, tensor, strlen(tensor)) + 1;
            s->params[i].saved_outer_nbytes = strlen("net.");
            return;
        }
    cr_assert_fail("no parameter %s", fqn);
}

static void given_saved(const char *rows)
{
    given("a 3; b 4; net/module/a 3; net/module/b 4;");
    given(rows);
    cr_assert_eq(catalogue_seal(&s->cat, NULL), FSDPCK_OK);
    s->order.strip_ddp = true;
    saved_as("a", "net.module.a");
    saved_as("b", "net.module.b");
}

Test(rekey, numbers_get_the_prefixes_of_the_model)
{
    given_saved("optim/state/#0/exp_avg 4; optim/state/#1/exp_avg 3;"
                "optim/param_groups/@0/params = [0 1]");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/module.b/exp_avg");
    expect_object("optim/param_groups/@0/params", "['module.b', 'module.a']");
}

Test(rekey, names_keep_the_prefixes_of_the_model)
{
    given_saved("optim/state/module.a/exp_avg 3; optim/state/module.b/exp_avg 4;"
                "optim/param_groups/@0/lr = 1; optim/param_groups/@0/params = [module.a module.b]");
    must_run(OPTIM_KEYS_FLAT);
    expect_tensor("optim/state.module.a.exp_avg");
    expect_object("optim/param_groups.module.b.lr", "1");
}

/* get_optimizer_state_dict() gives clean names, model.state_dict() of a wrapper does not. */
Test(rekey, clean_names_stay)
{
    given_saved("optim/state/a/exp_avg 3; optim/state/b/exp_avg 4;"
                "optim/param_groups/@0/lr = 1; optim/param_groups/@0/params = [a b]");
    must_run(OPTIM_KEYS_FLAT);
    expect_tensor("optim/state.a.exp_avg");
    expect_object("optim/param_groups.b.lr", "1");
}

/* --- refusals --- */

static const struct refusal {
    const char *what;
    optim_keys to;
    const char *finding, *given;
} refusals[] = {
    {"two of one shape", OPTIM_KEYS_NAME, "MODEL-NEEDED",
     ADAM "optim/param_groups/@0/params = [0 1 2 3]"}, /* 1 and 2 may be either norm */
    {"flattened by number too", OPTIM_KEYS_FLAT, "MODEL-NEEDED",
     ADAM "optim/param_groups/@0/params = [0 1 2 3]"},
    {"without state groups are not settled", OPTIM_KEYS_NAME, "MODEL-NEEDED",
     "a 3; b 3; optim/param_groups/@0/params = [0];"
     "optim/param_groups/@1/params = [1]"},
    {"without state a part is not settled", OPTIM_KEYS_NAME, "MODEL-NEEDED",
     "a 3; b 3; optim/param_groups/@0/params = [0]"},
    /* State of a kind that is not known tells no shape. */
    {"unknown state tells nothing", OPTIM_KEYS_NAME, "MODEL-NEEDED",
     "a 3; b 4; optim/state/#0/preconditioner 3; optim/state/#1/preconditioner 4;"
     "optim/param_groups/@0/params = [0 1]"},
    {"given names of other shapes", OPTIM_KEYS_NAME, "MODEL-OPTIM",
     PAIR "optim/param_groups/@0/param_names = [b a]"},
    {"ambiguous", OPTIM_KEYS_NAME, "MODEL-NEEDED",
     ADAM "optim/param_groups/@0/params = [0 1];"
          "optim/param_groups/@1/params = [2 3]"}, /* either norm may be in either group */
    {"other shapes", OPTIM_KEYS_NAME, "MODEL-OPTIM",
     ADAM "optim/state/#4/exp_avg 9x9; optim/param_groups/@0/params = [0 1 2 3 4]"},
    {"no model", OPTIM_KEYS_NAME, "MODEL-NEEDED",
     "state/#0/exp_avg 4; param_groups/@0/params = [0]"},
    {"two optimizers of one parameter", OPTIM_KEYS_NAME, "MODEL-NEEDED", TWO_OPTIMIZERS},
    {"two optimizers in the order of one model", OPTIM_KEYS_NAME, "MODEL-NEEDED",
     TWO_OPTIMIZERS "in order"},
    {"names of one of two optimizers settle nothing for the other", OPTIM_KEYS_FLAT, "MODEL-NEEDED",
     TWO_OPTIMIZERS "one/param_groups/@0/param_names = [pi]"},
    {"a tensor beside the model may be meant", OPTIM_KEYS_NAME, "MODEL-NEEDED",
     "x 5; outside criterion.log_vars 5; optim/state/#0/exp_avg 5;"
     "optim/param_groups/@0/params = [0]"},
    {"given names that the model does not have", OPTIM_KEYS_NAME, "MODEL-OPTIM",
     PAIR "optim/param_groups/@0/param_names = [a gone]"},
    {"sorted names may be the optimizers own", OPTIM_KEYS_ID, "MODEL-NEEDED",
     "z 3; a 4; optim/state/a/exp_avg 4; optim/param_groups/@0/params = [a z]"},
    {"a parameter twice", OPTIM_KEYS_NAME, "MODEL-OPTIM",
     ADAM "optim/param_groups/@0/params = [0 1 1]"},
    {"numbers and names", OPTIM_KEYS_NAME, "MODEL-OPTIM",
     ADAM "optim/param_groups/@0/params = [0 emb.weight]"},
    {"no list", OPTIM_KEYS_ID, "MODEL-OPTIM", ADAM "optim/param_groups/@0/params = 1"},
    {"a list of tensors, flattened", OPTIM_KEYS_FLAT, "MODEL-OPTIM",
     "a 4; optim/state/a/old_dirs/@0 4; optim/param_groups/@0/params = [a]"},
    {"a key with a dot, flattened", OPTIM_KEYS_FLAT, "MODEL-OPTIM",
     "a 4; optim/state/a/x.y 4; optim/param_groups/@0/params = [a]"},
    {"two names that are one", OPTIM_KEYS_FLAT, "KEY-DUP",
     "a 4; state/_orig_mod.a/exp_avg 4; state/a/exp_avg 4;"
     "param_groups/@0/params = [_orig_mod.a a]"},
};

Test(rekey, refusals)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        fsdpck_error err;
        given(refusals[i].given);
        cr_expect(run(refusals[i].to, &err) != FSDPCK_OK &&
                      strcmp(fsdpck_finding_name(err.finding), refusals[i].finding) == 0,
                  "%s: %s", refusals[i].what, fsdpck_finding_name(err.finding));
        teardown();
        setup();
    }
}
