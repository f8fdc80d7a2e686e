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

/* Tensors of two dims, by their paths. */
static void add_all(const char *paths)
{
    char copy[512];
    snprintf(copy, sizeof copy, "%s", paths);
    for (char *at = strtok(copy, " "); at != NULL; at = strtok(NULL, " "))
        (void)add(at, DTYPE_FLOAT32, 2);
}

static void find(void)
{
    cr_assert_eq(catalogue_seal(&c, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(checkpoint_parts_find(&c, &parts, &err), FSDPCK_OK);
}

/* A letter for each of the first tensors: M model, O optimizer, X other. */
static void expect_parts(const char *letters)
{
    static const char names[] = {[PART_MODEL] = 'M', [PART_OPTIMIZER] = 'O', [PART_OTHER] = 'X'};
    cr_assert_geq(parts.tensor_count, strlen(letters));
    for (size_t i = 0; letters[i] != '\0'; i++)
        cr_expect_eq(names[parts.tensor_part[i]], letters[i], "tensor %zu is in %c", i,
                     names[parts.tensor_part[i]]);
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
    add_all("state_dict/w model/w optim/state.w.exp_avg other/w");
    find();
    cr_expect_str_eq(parts.model_key, "model");
    cr_expect_eq(parts.model_depth, 1);
    expect_parts("XMOX");
}

Test(parts, app_model_is_two_keys)
{
    add_all("app/model/w app/optim/w");
    find();
    cr_expect_str_eq(parts.model_key, "app.model");
    cr_expect_eq(parts.model_depth, 2);
    expect_parts("MO");
}

Test(parts, flat_names_have_no_outer_key)
{
    add_all("model.embed.weight lm_head.weight");
    find();
    cr_expect_str_eq(parts.model_key, "");
    cr_expect_eq(parts.model_depth, 0);
    expect_parts("MM");
}

Test(parts, without_a_key_all_is_model_but_what_trainers_keep_beside_it)
{
    static const char *const others[] = {"lr_scheduler/last_lr", "dataloader/rng",
                                         "train_state/loss", "rng_state", "extra_state.x"};
    add_all("net/w optimizer/w");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        add(others[i], DTYPE_UINT8, 1);
    add("global_step", DTYPE_INT64, 0);
    add("running_steps", DTYPE_INT64, 1);
    find();
    expect_parts("MOXXXXXXM"); /* a counter has no dims */
    cr_expect(strstr(parts.rule, "'optimizer'") != NULL, "%s", parts.rule);
}

/* Names that begin as a trainer's keys do. */
#define NAMESAKES                                                                       \
    "rng_embed.weight optimizer_head.weight optimizer.weight "                          \
    "dataloader_proj.weight extra_state_x lr_scheduler_net.w train_state.w rng.weight " \
    "optim.state.weight flat_param state.w"

Test(parts, of_a_bare_model_no_parameter_is_lost_by_its_name)
{
    add_all(NAMESAKES);
    add("step_embed.num_batches_tracked", DTYPE_INT64, 0);
    add("global_step", DTYPE_INT64, 0);
    find();
    expect_parts("MMMMMMMMMMMMM");
    cr_expect_str_eq(parts.rule, "model only: no outer key, no optimizer state");
}

/* torchtitan keeps the model's names at the top, beside the optimizer. */
Test(parts, beside_an_optimizer_parameters_keep_their_names_too)
{
    add_all(NAMESAKES);
    add("step_embed.num_batches_tracked", DTYPE_INT64, 0);
    add_all("optimizer/state.rng_embed.weight.exp_avg");
    add("train_state/step", DTYPE_INT64, 0);
    find();
    expect_parts("MMMMMMMMMMMMOX");
}

Test(parts, modules_that_are_nested_dicts_are_none_of_a_trainers)
{
    add_all("rng_embed/weight optim_head/weight dataloader_proj/weight");
    add("dataloader_0/index", DTYPE_INT64, 1);
    find();
    expect_parts("MMMX");
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
    add_all("state/model/blk.w state/optimizers/DecoupledAdamW/state/blk.w/exp_avg "
            "state/optimizers/DecoupledAdamW/state/blk.w/odd");
    add("rng/0/cuda", DTYPE_UINT8, 1);
    find();
    cr_expect_str_eq(parts.model_key, "state.model");
    cr_expect_eq(parts.model_depth, 2);
    cr_expect_str_eq(parts.optimizer_key, "state.optimizers.DecoupledAdamW");
    expect_parts("MOOX"); /* a slot that no list has */
    expect_name(PART_MODEL, true, "state.model.blk.w", "blk.w");
}

Test(parts, an_optimizer_is_one_by_its_param_groups_whatever_its_key)
{
    add_all("net/w adam/state/w/odd adam/extra/w");
    add_object("adam/param_groups/lr");
    find();
    expect_parts("MOM"); /* nothing says that it is no parameter */
    cr_expect_eq(parts.object_part[0], PART_OPTIMIZER);
}

Test(parts, flat_names_of_an_optimizer_are_told_by_their_shape)
{
    add_all("optimizer.state.exp_avg.blk.w optimizer.state.fp32_param.blk.w "
            "optim_1.state.0.momentum_buffer state.optimizers.A.state.0.exp_avg_sq "
            "optimizer_states.0.state.1.exp_avg opt.state.blk.state.w.exp_avg "
            "optimizers.distributed.a.b.exp_avg_sq");
    add("optim_2.state.w.step", DTYPE_FLOAT32, 0);
    add_all("blk.w blk.state.w");
    find();
    expect_parts("OOOOOOOOMM");
}

Test(parts, an_optimizer_inside_the_models_dict_is_no_parameter)
{
    add_all("model/w model/opt/state/w/exp_avg");
    add_object("model/opt/param_groups/lr");
    find();
    expect_parts("MO");
}

Test(parts, a_key_that_is_itself_a_tensor_is_no_outer_key)
{
    add_all("model");
    find();
    cr_expect_eq(parts.model_depth, 0);
    expect_parts("M");
}

Test(parts, module_in_front_of_every_model_tensor_is_ddp)
{
    add_all("model/module.a model/_orig_mod.module.b optim/x");
    find();
    cr_expect(parts.model_has_ddp);
}

Test(parts, module_in_front_of_some_is_an_ordinary_name)
{
    add_all("model/module.a model/b");
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
    add_all("state/w/exp_avg");
    add_bare_object("param_groups", "lr");
    find();
    cr_expect(parts.bare_optimizer);
    expect_parts("O");
    cr_expect_eq(parts.object_part[0], PART_OPTIMIZER);
    cr_expect_str_eq(parts.optimizer_key, "");
}

Test(parts, state_alone_and_flat_names_are_no_optimizer)
{
    add_all("state/w param_groups.x");
    find();
    cr_expect_not(parts.bare_optimizer);
    expect_parts("MM");
}

Test(parts, the_optimizer_alone_goes_without_its_one_outer_key)
{
    add_all("model/w optim/state/w/exp_avg");
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
    add_all("optim_g/state/w/exp_avg optim_d/state/w/exp_avg");
    find();
    cr_expect_str_eq(parts.optimizer_key, "");
    expect_name(PART_OPTIMIZER, true, "optim_d.state.w.exp_avg", "optim_d.state.w.exp_avg");
}

Test(parts, what_precedes_the_root_of_peft_is_an_outer_key)
{
    add_all(
        "model.base_model.model.a model.base_model.model.model.b model.base_model.model.model.c");
    find();
    cr_expect_str_eq(parts.model_key, "model");
    cr_expect_eq(parts.model_depth, 0);
    expect_parts("MMM");
    expect_name(PART_MODEL, true, "model.base_model.model.a", "base_model.model.a");
    expect_name(PART_MODEL, false, "model.base_model.model.a", "model.base_model.model.a");
}

Test(parts, other_beginnings_of_peft_names_stay)
{
    static const char *const states[] = {
        "base_model.model.a base_model.model.model.b",       /* no key */
        "model.base_model.model.a other.base_model.model.b", /* two */
        "model.base_model.model.a model.b",                  /* not all */
        "model.base_model.modela model.base_model.modelb",   /* no root */
        "_fsdp_wrapped_module.base_model.model.a _fsdp_wrapped_module.base_model.model.b",
    };
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        add_all(states[i]);
        find();
        cr_expect_str_eq(parts.model_key, "", "%s", states[i]);
        teardown();
        setup();
    }
}

Test(parts, a_key_above_peft_that_no_list_contains)
{
    add_all("policy/base_model.model.a policy/base_model.model.b");
    find();
    cr_expect_str_eq(parts.model_key, "policy");
    expect_name(PART_MODEL, true, "policy.base_model.model.a", "base_model.model.a");
}
