#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "catalogue_paths.h"
#include "select/checkpoint_parts.h"

static budget owner;
static catalogue c;
static checkpoint_parts parts;
static fsdpck_error err;

static void setup(void)
{
    budget_init(&owner, (uint64_t)1 << 30, "metadata", NULL);
    catalogue_init(&c, &owner);
    memset(&parts, 0, sizeof parts);
    fsdpck_error_init(&err);
}

static void teardown(void)
{
    checkpoint_parts_release(&parts);
    catalogue_release(&c);
}

TestSuite(parts, .init = setup, .fini = teardown);

static uint32_t add(const char *path, dtype d, unsigned ndim)
{
    static const uint64_t shape[] = {2, 2};
    return add_by_path(&c, path, d, ndim, shape);
}

static void find(void)
{
    cr_assert_eq(catalogue_seal(&c, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(checkpoint_parts_find(&c, &parts, &err), FSDPCK_OK);
}

static void expect_name(checkpoint_part part, bool alone, const char *name, const char *expected)
{
    text_buf made = {0};
    checkpoint_parts_append_name(&parts, part, alone, false, name, strlen(name), &made);
    text_append(&made, "", 0);
    cr_expect_str_eq(made.text, expected);
    text_release(&made);
}

Test(parts, the_model_is_what_lies_under_the_first_known_key)
{
    add("state_dict/w", DTYPE_FLOAT32, 2);
    add("model/w", DTYPE_FLOAT32, 2);
    add("optim/state.w.exp_avg", DTYPE_FLOAT32, 2);
    add("other/w", DTYPE_FLOAT32, 2);
    find();
    cr_expect_str_eq(parts.model_key, "model");
    cr_expect_eq(parts.model_depth, 1);
    cr_expect_eq(parts.tensor_part[0], PART_OTHER);
    cr_expect_eq(parts.tensor_part[1], PART_MODEL);
    cr_expect_eq(parts.tensor_part[2], PART_OPTIMIZER);
    cr_expect_eq(parts.tensor_part[3], PART_OTHER);
}

Test(parts, app_model_is_two_keys)
{
    add("app/model/w", DTYPE_FLOAT32, 2);
    add("app/optim/w", DTYPE_FLOAT32, 2);
    find();
    cr_expect_str_eq(parts.model_key, "app.model");
    cr_expect_eq(parts.model_depth, 2);
    cr_expect_eq(parts.tensor_part[0], PART_MODEL);
    cr_expect_eq(parts.tensor_part[1], PART_OPTIMIZER);
}

Test(parts, flat_names_have_no_outer_key)
{
    add("model.embed.weight", DTYPE_FLOAT32, 2);
    add("lm_head.weight", DTYPE_FLOAT32, 2);
    find();
    cr_expect_str_eq(parts.model_key, "");
    cr_expect_eq(parts.model_depth, 0);
    cr_expect_eq(parts.tensor_part[0], PART_MODEL);
    cr_expect_eq(parts.tensor_part[1], PART_MODEL);
}

Test(parts, without_a_key_all_is_model_but_what_trainers_keep_beside_it)
{
    static const char *const others[] = {"lr_scheduler/last_lr", "dataloader/rng",
                                         "train_state/loss", "rng_state", "extra_state.x"};
    add("net/w", DTYPE_FLOAT32, 2);
    add("optimizer/w", DTYPE_FLOAT32, 2);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        add(others[i], DTYPE_UINT8, 1);
    add("global_step", DTYPE_INT64, 0);
    add("running_steps", DTYPE_INT64, 1);
    find();
    cr_expect_eq(parts.tensor_part[0], PART_MODEL);
    cr_expect_eq(parts.tensor_part[1], PART_OPTIMIZER);
    for (size_t i = 2; i < 7; i++)
        cr_expect_eq(parts.tensor_part[i], PART_OTHER, "%s", others[i - 2]);
    cr_expect_eq(parts.tensor_part[7], PART_OTHER, "a counter");
    cr_expect_eq(parts.tensor_part[8], PART_MODEL, "a counter has no dims");
    cr_expect(strstr(parts.rule, "'optimizer'") != NULL, "%s", parts.rule);
}

/* Names that begin as a trainer's keys do. */
static const char *const namesakes[] = {"rng_embed.weight",
                                        "optimizer_head.weight",
                                        "optimizer.weight",
                                        "dataloader_proj.weight",
                                        "extra_state_x",
                                        "lr_scheduler_net.w",
                                        "train_state.w",
                                        "rng.weight",
                                        "optim.state.weight",
                                        "flat_param",
                                        "state.w"};

Test(parts, of_a_bare_model_no_parameter_is_lost_by_its_name)
{
    for (size_t i = 0; i < sizeof namesakes / sizeof namesakes[0]; i++)
        add(namesakes[i], DTYPE_FLOAT32, 2);
    add("step_embed.num_batches_tracked", DTYPE_INT64, 0);
    add("global_step", DTYPE_INT64, 0);
    find();
    for (size_t i = 0; i < parts.tensor_count; i++)
        cr_expect_eq(parts.tensor_part[i], PART_MODEL, "%zu", i);
    cr_expect_str_eq(parts.rule, "model only: no outer key, no optimizer state");
}

/* torchtitan keeps the model's names at the top, beside the optimizer. */
Test(parts, beside_an_optimizer_parameters_keep_their_names_too)
{
    for (size_t i = 0; i < sizeof namesakes / sizeof namesakes[0]; i++)
        add(namesakes[i], DTYPE_FLOAT32, 2);
    add("step_embed.num_batches_tracked", DTYPE_INT64, 0);
    add("optimizer/state.rng_embed.weight.exp_avg", DTYPE_FLOAT32, 2);
    add("train_state/step", DTYPE_INT64, 0);
    find();
    const size_t n = parts.tensor_count;
    for (size_t i = 0; i < n - 2; i++)
        cr_expect_eq(parts.tensor_part[i], PART_MODEL, "%zu", i);
    cr_expect_eq(parts.tensor_part[n - 2], PART_OPTIMIZER);
    cr_expect_eq(parts.tensor_part[n - 1], PART_OTHER);
}

Test(parts, modules_that_are_nested_dicts_are_none_of_a_trainers)
{
    add("rng_embed/weight", DTYPE_FLOAT32, 2);
    add("optim_head/weight", DTYPE_FLOAT32, 2);
    add("dataloader_proj/weight", DTYPE_FLOAT32, 2);
    add("dataloader_0/index", DTYPE_INT64, 1);
    find();
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(parts.tensor_part[i], PART_MODEL, "%zu", i);
    cr_expect_eq(parts.tensor_part[3], PART_OTHER);
}

static void add_object(const char *path)
{
    const uint32_t t = add(path, DTYPE_UINT8, 1);
    const cat_tensor *like = catalogue_tensor(&c, t);
    uint32_t index;
    cr_assert_eq(catalogue_add_object(&c, catalogue_name(&c, like->name),
                                      catalogue_name_nbytes(&c, like->name), &index, &err),
                 FSDPCK_OK);
    catalogue_object(&c, index)->path = like->path;
    catalogue_tensor(&c, t)->flags |= CAT_TENSOR_IN_OBJECT;
}

Test(parts, composer_keeps_model_and_optimizers_below_state)
{
    add("state/model/blk.w", DTYPE_FLOAT32, 2);
    add("state/optimizers/DecoupledAdamW/state/blk.w/exp_avg", DTYPE_FLOAT32, 2);
    add("state/optimizers/DecoupledAdamW/state/blk.w/odd", DTYPE_FLOAT32, 2);
    add("rng/0/cuda", DTYPE_UINT8, 1);
    find();
    cr_expect_str_eq(parts.model_key, "state.model");
    cr_expect_eq(parts.model_depth, 2);
    cr_expect_str_eq(parts.optimizer_key, "state.optimizers.DecoupledAdamW");
    cr_expect_eq(parts.tensor_part[0], PART_MODEL);
    cr_expect_eq(parts.tensor_part[1], PART_OPTIMIZER);
    cr_expect_eq(parts.tensor_part[2], PART_OPTIMIZER, "a slot that no list has");
    cr_expect_eq(parts.tensor_part[3], PART_OTHER);
    expect_name(PART_MODEL, true, "state.model.blk.w", "blk.w");
}

Test(parts, an_optimizer_is_one_by_its_param_groups_whatever_its_key)
{
    add("net/w", DTYPE_FLOAT32, 2);
    add("adam/state/w/odd", DTYPE_FLOAT32, 2);
    add("adam/extra/w", DTYPE_FLOAT32, 2);
    add_object("adam/param_groups/lr");
    find();
    cr_expect_eq(parts.tensor_part[0], PART_MODEL);
    cr_expect_eq(parts.tensor_part[1], PART_OPTIMIZER);
    cr_expect_eq(parts.tensor_part[2], PART_MODEL, "nothing says that it is no parameter");
    cr_expect_eq(parts.object_part[0], PART_OPTIMIZER);
}

Test(parts, flat_names_of_an_optimizer_are_told_by_their_shape)
{
    static const char *const states[] = {
        "optimizer.state.exp_avg.blk.w",        "optimizer.state.fp32_param.blk.w",
        "optim_1.state.0.momentum_buffer",      "state.optimizers.A.state.0.exp_avg_sq",
        "optimizer_states.0.state.1.exp_avg",   "opt.state.blk.state.w.exp_avg",
        "optimizers.distributed.a.b.exp_avg_sq"};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        add(states[i], DTYPE_FLOAT32, 2);
    add("optim_2.state.w.step", DTYPE_FLOAT32, 0);
    add("blk.w", DTYPE_FLOAT32, 2);
    add("blk.state.w", DTYPE_FLOAT32, 2);
    find();
    const size_t n = parts.tensor_count;
    for (size_t i = 0; i < n - 2; i++)
        cr_expect_eq(parts.tensor_part[i], PART_OPTIMIZER, "%zu", i);
    cr_expect_eq(parts.tensor_part[n - 2], PART_MODEL);
    cr_expect_eq(parts.tensor_part[n - 1], PART_MODEL);
}

Test(parts, an_optimizer_inside_the_models_dict_is_no_parameter)
{
    add("model/w", DTYPE_FLOAT32, 2);
    add("model/opt/state/w/exp_avg", DTYPE_FLOAT32, 2);
    add_object("model/opt/param_groups/lr");
    find();
    cr_expect_eq(parts.tensor_part[0], PART_MODEL);
    cr_expect_eq(parts.tensor_part[1], PART_OPTIMIZER);
}

Test(parts, a_key_that_is_itself_a_tensor_is_no_outer_key)
{
    add("model", DTYPE_FLOAT32, 2);
    find();
    cr_expect_eq(parts.model_depth, 0);
    cr_expect_eq(parts.tensor_part[0], PART_MODEL);
}

Test(parts, module_in_front_of_every_model_tensor_is_ddp)
{
    add("model/module.a", DTYPE_FLOAT32, 2);
    add("model/_orig_mod.module.b", DTYPE_FLOAT32, 2);
    add("optim/x", DTYPE_FLOAT32, 2);
    find();
    cr_expect(parts.model_has_ddp);
}

Test(parts, module_in_front_of_some_is_an_ordinary_name)
{
    add("model/module.a", DTYPE_FLOAT32, 2);
    add("model/b", DTYPE_FLOAT32, 2);
    find();
    cr_expect_not(parts.model_has_ddp);
}

Test(parts, an_empty_catalogue_has_no_model)
{
    find();
    cr_expect_eq(parts.tensor_count, 0);
    cr_expect_not(parts.model_has_ddp);
}

static void add_bare_object(const char *key, const char *name)
{
    value elements[3], tuple;
    uint32_t index;
    char text[128];
    const int n = snprintf(text, sizeof text, "%s.0.%s", key, name);
    cr_assert_eq(value_new_str(&c.pool, key, strlen(key), &elements[0], &err), FSDPCK_OK);
    cr_assert_eq(value_new_int(&c.pool, 0, &elements[1], &err), FSDPCK_OK);
    cr_assert_eq(value_new_str(&c.pool, name, strlen(name), &elements[2], &err), FSDPCK_OK);
    cr_assert_eq(value_new_from(&c.pool, VALUE_TUPLE, elements, 3, &tuple, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_add_object(&c, text, (size_t)n, &index, &err), FSDPCK_OK);
    catalogue_object(&c, index)->path = tuple;
}

Test(parts, state_beside_param_groups_is_an_optimizer_alone)
{
    add("state/w/exp_avg", DTYPE_FLOAT32, 2);
    add_bare_object("param_groups", "lr");
    find();
    cr_expect(parts.bare_optimizer);
    cr_expect_eq(parts.tensor_part[0], PART_OPTIMIZER);
    cr_expect_eq(parts.object_part[0], PART_OPTIMIZER);
    cr_expect_str_eq(parts.optimizer_key, "");
}

Test(parts, state_alone_and_flat_names_are_no_optimizer)
{
    add("state/w", DTYPE_FLOAT32, 2);
    add("param_groups.x", DTYPE_FLOAT32, 2);
    find();
    cr_expect_not(parts.bare_optimizer);
    cr_expect_eq(parts.tensor_part[0], PART_MODEL);
    cr_expect_eq(parts.tensor_part[1], PART_MODEL);
}

Test(parts, the_optimizer_alone_goes_without_its_one_outer_key)
{
    add("model/w", DTYPE_FLOAT32, 2);
    add("optim/state/w/exp_avg", DTYPE_FLOAT32, 2);
    add("optim/state/w/step", DTYPE_FLOAT32, 0);
    find();
    cr_expect_str_eq(parts.optimizer_key, "optim");
    expect_name(PART_OPTIMIZER, true, "optim.state.w.step", "state.w.step");
    expect_name(PART_OPTIMIZER, false, "optim.state.w.step", "optim.state.w.step");
    expect_name(PART_MODEL, true, "model.w", "w");
    expect_name(PART_OTHER, true, "epoch", "epoch");
}

Test(parts, keys_of_several_optimizers_tell_them_apart)
{
    add("optim_g/state/w/exp_avg", DTYPE_FLOAT32, 2);
    add("optim_d/state/w/exp_avg", DTYPE_FLOAT32, 2);
    find();
    cr_expect_str_eq(parts.optimizer_key, "");
    expect_name(PART_OPTIMIZER, true, "optim_d.state.w.exp_avg", "optim_d.state.w.exp_avg");
}
