#include "tests/unit/statedict/rekey_case.h"

Test(rekey, one_group_by_order)
{
    add_adam();
    s->order.assumed = true;
    add_object("optim/param_groups/@0/lr", number(3));
    add_object("optim/param_groups/@0/params", list_of("0 1 2 3"));
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
    add_adam();
    s->order.assumed = true;
    add_object("optim/param_groups/@1/params", list_of("2 3"));
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    catalogue_object(&s->cat, 1)->content = list_of("0 3");
    catalogue_object(&s->cat, 0)->content = list_of("1 2");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/head.weight/exp_avg");
    expect_object("optim/param_groups/@0/params", "['emb.weight', 'head.weight']");
    expect_object("optim/param_groups/@1/params", "['norm.weight', 'norm.scale']");
}

Test(rekey, two_of_one_shape_are_refused)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1 2 3"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED"); /* 1 and 2 may be either norm */
}

Test(rekey, flattened_by_number_is_refused_too)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1 2 3"));
    must_refuse(OPTIM_KEYS_FLAT, "MODEL-NEEDED");
}

/* A number that Adafactor's factors leave two parameters for has one once another took its own. */
Test(rekey, what_is_left_is_settled)
{
    add_param("b", 2, 6, 5);
    add_param("a", 2, 6, 3);
    add_param("c", 0, 0, 0);
    add_tensor("optim/state/#0/exp_avg", 0, 0, 0);
    add_tensor("optim/state/#1/row_var", 2, 6, 1);
    add_tensor("optim/state/#2/exp_avg", 2, 6, 5);
    add_object("optim/param_groups/@0/params", list_of("0 1 2"));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/c/exp_avg");
    expect_tensor("optim/state/a/row_var");
    expect_tensor("optim/state/b/exp_avg");
}

/* Shapes settle whatever the order is. */
Test(rekey, another_order)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 4, 0);
    add_param("unused", 1, 9, 0);
    add_tensor("optim/state/#0/exp_avg", 1, 4, 0);
    add_tensor("optim/state/#1/exp_avg", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    must_run(OPTIM_KEYS_NAME);
    expect_object("optim/param_groups/@0/params", "['b', 'a']");
}

/* SGD without momentum: one group has all, so its members are known. */
Test(rekey, without_state_one_group_of_all_is_settled)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 3, 0);
    add_object("optim/state/#0/momentum_buffer", VALUE_OF_NONE);
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    must_run(OPTIM_KEYS_NAME);
    expect_object("optim/param_groups/@0/params", "['a', 'b']");
}

Test(rekey, without_state_groups_are_not_settled)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("0"));
    add_object("optim/param_groups/@1/params", list_of("1"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, without_state_a_part_is_not_settled)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("0"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

/* State of a kind that is not known tells no shape. */
Test(rekey, unknown_state_tells_nothing)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 4, 0);
    add_tensor("optim/state/#0/preconditioner", 1, 3, 0);
    add_tensor("optim/state/#1/preconditioner", 1, 4, 0);
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

static void describe_groups(const char *key, const char *first, const char *second)
{
    cr_assert_eq(optim_groups_add(&s->groups, key, strlen(key), NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_open(&s->groups, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, first, strlen(first), NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, second, strlen(second), NULL), FSDPCK_OK);
    s->order.groups = &s->groups;
}

static void add_pair(void)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 4, 0);
    add_tensor("optim/state/#0/exp_avg", 1, 3, 0);
    add_tensor("optim/state/#1/exp_avg", 1, 4, 0);
    add_object("optim/param_groups/@0/params", list_of("0 1"));
}

Test(rekey, a_description_of_other_shapes_is_refused)
{
    add_pair();
    describe_groups("optim", "b", "a");
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, given_names_of_other_shapes_are_refused)
{
    add_pair();
    add_object("optim/param_groups/@0/param_names", list_of("b a"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, a_description_against_given_names_is_refused)
{
    add_pair();
    add_object("optim/param_groups/@0/param_names", list_of("a b"));
    describe_groups("optim", "b", "a");
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

/* A list under another key is no list of one of several optimizers. */
Test(rekey, one_list_for_two_optimizers_is_not_taken)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 3, 0);
    add_tensor("one/state/#0/exp_avg", 1, 3, 0);
    add_tensor("one/state/#1/exp_avg", 1, 3, 0);
    add_tensor("two/state/#0/exp_avg", 1, 3, 0);
    add_tensor("two/state/#1/exp_avg", 1, 3, 0);
    add_object("one/param_groups/@0/params", list_of("0 1"));
    add_object("two/param_groups/@0/params", list_of("0 1"));
    describe_groups("any", "b", "a");
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, ambiguous_is_refused)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    add_object("optim/param_groups/@1/params", list_of("2 3"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED"); /* either norm may be in either group */
}

Test(rekey, description_settles_it)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    add_object("optim/param_groups/@1/params", list_of("2 3"));
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

Test(rekey, other_shapes_are_refused)
{
    add_adam();
    add_tensor("optim/state/#4/exp_avg", 2, 9, 9);
    add_object("optim/param_groups/@0/params", list_of("0 1 2 3 4"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, no_model_is_refused)
{
    add_tensor("state/#0/exp_avg", 1, 4, 0);
    add_object("param_groups/@0/params", list_of("0"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, given_names_come_first)
{
    add_tensor("state/#0/exp_avg", 1, 4, 0);
    add_tensor("state/#1/exp_avg", 1, 4, 0);
    add_object("param_groups/@0/params", list_of("0 1"));
    add_object("param_groups/@0/param_names", list_of("_orig_mod.b a"));
    must_run(OPTIM_KEYS_NAME);
    expect_object("param_groups/@0/params", "['b', 'a']");
    expect_tensor("state/b/exp_avg");
}

Test(rekey, frozen_without_state_and_rows)
{
    add_param("a", 2, 6, 3);
    add_param("frozen", 2, 9, 9);
    add_param("b", 2, 3, 8);
    add_tensor("optim/state/#0/row_var", 2, 6, 1);
    add_tensor("optim/state/#0/col_var", 2, 1, 3);
    add_tensor("optim/state/#2/exp_avg_sq_row", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("0 1 2"));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/a/row_var");
    expect_tensor("optim/state/b/exp_avg_sq_row");
}

/* --- several optimizers --- */

/* A tensor beside the model, which an optimizer may hold as well. */
static void add_outside(const char *fqn, unsigned ndim, uint64_t rows, uint64_t columns)
{
    add_param(fqn, ndim, rows, columns);
    s->params[s->order.count - 1].outside = true;
}

static void add_two_optimizers(void)
{
    add_param("pi", 1, 3, 0);
    add_tensor("one/state/#0/exp_avg", 1, 3, 0);
    add_tensor("two/state/#0/exp_avg", 1, 3, 0);
    add_object("one/param_groups/@0/params", list_of("0"));
    add_object("two/param_groups/@0/params", list_of("0"));
}

Test(rekey, two_optimizers_of_one_parameter_are_refused)
{
    add_two_optimizers();
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, two_optimizers_in_the_order_of_one_model_are_refused)
{
    add_two_optimizers();
    s->order.assumed = true;
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, names_of_one_of_two_optimizers_settle_nothing_for_the_other)
{
    add_two_optimizers();
    add_object("one/param_groups/@0/param_names", list_of("pi"));
    must_refuse(OPTIM_KEYS_FLAT, "MODEL-NEEDED");
}

Test(rekey, names_of_both_optimizers_are_believed)
{
    add_two_optimizers();
    add_object("one/param_groups/@0/param_names", list_of("pi"));
    add_object("two/param_groups/@0/param_names", list_of("pi"));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("one/state/pi/exp_avg");
    expect_tensor("two/state/pi/exp_avg");
}

Test(rekey, a_tensor_beside_the_model_may_be_meant)
{
    add_param("x", 1, 5, 0);
    add_outside("criterion.log_vars", 1, 5, 0);
    add_tensor("optim/state/#0/exp_avg", 1, 5, 0);
    add_object("optim/param_groups/@0/params", list_of("0"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, the_order_is_that_of_the_model_alone)
{
    add_param("x", 1, 5, 0);
    add_outside("criterion.log_vars", 1, 5, 0);
    add_tensor("optim/state/#0/exp_avg", 1, 5, 0);
    add_object("optim/param_groups/@0/params", list_of("0"));
    s->order.assumed = true;
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
    add_two_optimizers();
    learn();
    cr_expect(is_open("one.state.0.exp_avg"));
    cr_expect(is_open("two.state.0.exp_avg"));
}

Test(rekey, groups_that_leave_the_order_open_stay_open)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    add_object("optim/param_groups/@1/params", list_of("2 3"));
    s->order.assumed = true;
    learn();
    cr_expect_not(is_open("optim.state.0.exp_avg"));
    cr_expect(is_open("optim.state.1.exp_avg"));
    cr_expect(is_open("optim.state.2.exp_avg"));
}

Test(rekey, state_that_fits_nothing_stays_open)
{
    add_pair();
    add_tensor("optim/state/#0/exp_avg_sq", 1, 9, 0);
    learn();
    cr_expect(is_open("optim.state.0.exp_avg"));
    cr_expect(is_open("optim.state.1.exp_avg"));
}

/* Two numbers may be the two that need a gradient, or others. */
Test(rekey, frozen_ones_of_a_description_may_be_meant)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 3, 0);
    add_param("c", 1, 3, 0);
    add_tensor("optim/state/#0/exp_avg", 1, 3, 0);
    add_tensor("optim/state/#1/exp_avg", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    s->order.assumed = true;
    s->order.described = true;
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

/* --- param_names --- */

Test(rekey, given_names_of_a_wrapper_are_the_models)
{
    add_pair();
    add_object("optim/param_groups/@0/param_names", list_of("module.a module._orig_mod.b"));
    must_run(OPTIM_KEYS_NAME);
    expect_object("optim/param_groups/@0/params", "['a', 'b']");
}

Test(rekey, given_names_that_the_model_does_not_have_are_refused)
{
    add_pair();
    add_object("optim/param_groups/@0/param_names", list_of("a gone"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, given_names_of_what_is_beside_the_model_are_its_own)
{
    add_pair();
    add_outside("critic.q", 1, 6, 0);
    add_tensor("critic_optim/state/#0/exp_avg", 1, 6, 0);
    add_object("critic_optim/param_groups/@0/params", list_of("0"));
    add_object("critic_optim/param_groups/@0/param_names", list_of("q"));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("critic_optim/state/q/exp_avg");
}

Test(rekey, given_names_of_a_tie_stay)
{
    add_pair();
    add_param("tied", 1, 4, 0);
    s->params[2].tied = true;
    s->params[2].tied_to = 1;
    add_object("optim/param_groups/@0/param_names", list_of("a tied"));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/tied/exp_avg");
}

/* A tie is no second parameter of its shape. */
Test(rekey, a_tie_is_no_parameter_of_its_own)
{
    add_pair();
    add_param("tied", 1, 4, 0);
    s->params[2].tied = true;
    s->params[2].tied_to = 1;
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/b/exp_avg");
}

/* --- names to numbers --- */

Test(rekey, sorted_names_may_be_the_optimizers_own)
{
    add_param("z", 1, 3, 0);
    add_param("a", 1, 4, 0);
    add_tensor("optim/state/a/exp_avg", 1, 4, 0);
    add_object("optim/param_groups/@0/params", list_of("a z"));
    must_refuse(OPTIM_KEYS_ID, "MODEL-NEEDED");
}

Test(rekey, sorted_names_follow_the_model)
{
    s->order.assumed = true;
    add_param("z", 1, 3, 0);
    add_param("a", 1, 4, 0);
    add_tensor("optim/state/a/exp_avg", 1, 4, 0);
    add_tensor("optim/state/z/exp_avg", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("a z"));
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
    add_tensor("state/a/exp_avg", 1, 4, 0);
    add_object("param_groups/@0/params", list_of("b a"));
    must_run(OPTIM_KEYS_ID);
    expect_tensor("state/#1/exp_avg");
    cr_expect_eq(s->warnings, 1);
    cr_expect_str_eq(s->finding, "OPTIM-ORDER");
}

Test(rekey, state_that_no_group_lists_keeps_its_keys)
{
    add_tensor("state/a/exp_avg", 1, 4, 0);
    add_tensor("state/gone/exp_avg", 1, 4, 0);
    add_object("param_groups/@0/params", list_of("a"));
    must_run(OPTIM_KEYS_ID);
    expect_tensor("state/#0/exp_avg");
    expect_tensor("state/gone/exp_avg");
    cr_expect_eq(s->warnings, 1);
    cr_expect_str_eq(s->finding, "OPTIM-STRAY");
}

Test(rekey, ddp_prefix_is_seen_through)
{
    s->order.assumed = true;
    add_param("b", 1, 3, 0);
    add_param("a", 1, 4, 0);
    add_tensor("optim/state/module.a/exp_avg", 1, 4, 0);
    add_object("optim/param_groups/@0/params", list_of("module.a module.b"));
    must_run(OPTIM_KEYS_ID);
    expect_tensor("optim/state/#1/exp_avg");
}

/* --- flattened --- */

Test(rekey, flattened_groups)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 4, 0);
    add_param("c", 1, 5, 0);
    add_tensor("optim/state.a.exp_avg", 1, 3, 0);
    add_tensor("optim/state.c.exp_avg", 1, 5, 0);
    add_object("optim/param_groups.a.lr", number(1));
    add_object("optim/param_groups.b.lr", number(2));
    add_object("optim/param_groups.c.lr", number(1));
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
    add_param("a", 1, 3, 0);
    add_param("a.b", 1, 3, 0);
    add_tensor("optim/state.a.b.exp_avg", 1, 3, 0);
    add_tensor("optim/state.a.exp_avg", 1, 3, 0);
    add_object("optim/param_groups.a.lr", number(1));
    add_object("optim/param_groups.a.b.lr", number(1));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/a.b/exp_avg");
    expect_tensor("optim/state/a/exp_avg");
}

/* As torch: each parameter has the names of its whole group, and they give the order of numbers. */
Test(rekey, flattened_names_are_those_of_the_group)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 4, 0);
    add_tensor("optim/state/#0/exp_avg", 1, 4, 0);
    add_tensor("optim/state/#1/exp_avg", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    add_object("optim/param_groups/@0/param_names", list_of("b a"));
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

Test(rekey, a_parameter_twice)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1 1"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, numbers_and_names)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 emb.weight"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, no_list)
{
    add_adam();
    add_object("optim/param_groups/@0/params", number(1));
    must_refuse(OPTIM_KEYS_ID, "MODEL-OPTIM");
}

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

Test(rekey, two_names_that_are_one)
{
    add_tensor("state/_orig_mod.a/exp_avg", 1, 4, 0);
    add_tensor("state/a/exp_avg", 1, 4, 0);
    add_object("param_groups/@0/params", list_of("_orig_mod.a a"));
    must_refuse(OPTIM_KEYS_FLAT, "KEY-DUP");
}

Test(rekey, learning_changes_no_name)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1 2 3"));
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
