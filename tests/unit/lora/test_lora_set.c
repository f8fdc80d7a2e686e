/* Adapters of LoRA in a catalogue: names, modules, roles. The names are those of PEFT 0.21.2. */
#include "tests/unit/lora/lora_case.h"

static const lora_module *module_of(const char *adapter, const char *path, uint32_t kind)
{
    for (size_t i = 0; i < lora_module_count(&set); i++) {
        const lora_module *m = lora_module_at(&set, i);
        if (strcmp(strtab_text(&set.adapters, m->adapter), adapter) == 0 && m->kind == kind &&
            strcmp(lora_text(&set, m->path), path) == 0)
            return m;
    }
    cr_assert_fail("no module '%s' of adapter '%s'", path, adapter);
    return NULL;
}

static void check_saved(uint32_t i, const char *name)
{
    cr_assert_neq(i, LORA_NONE, "no %s", name);
    cr_assert_str_eq(lora_text(&set, lora_tensor_at(&set, i)->saved), name);
}

Test(lora_set, names_of_a_model_with_two_adapters)
{
#define P "model.base_model.model.model.layers.0."
    static const named_shape t[] = {
        {P "self_attn.q_proj.base_layer.weight", 2, {8, 6}},
        {P "self_attn.q_proj.base_layer.bias", 1, {8}},
        {P "self_attn.q_proj.lora_A.default.weight", 2, {2, 6}},
        {P "self_attn.q_proj.lora_A.other.weight", 2, {3, 6}},
        {P "self_attn.q_proj.lora_B.default.weight", 2, {8, 2}},
        {P "self_attn.q_proj.lora_B.default.bias", 1, {8}},
        {P "self_attn.q_proj.lora_B.other.weight", 2, {8, 3}},
        {P "self_attn.q_proj.lora_magnitude_vector.default.weight", 1, {8}},
        {P "norm.weight", 1, {6}},
        {P "conv.base_layer.weight", 4, {8, 6, 3, 3}},
        {P "conv.lora_A.default.weight", 4, {2, 6, 3, 3}},
        {P "conv.lora_B.default.weight", 4, {8, 2, 1, 1}},
        {"model.base_model.model.model.embed_tokens.base_layer.weight", 2, {10, 6}},
        {"model.base_model.model.model.embed_tokens.lora_embedding_A.default", 2, {2, 10}},
        {"model.base_model.model.model.embed_tokens.lora_embedding_B.default", 2, {6, 2}},
        {"model.base_model.model.lm_head.original_module.weight", 2, {10, 6}},
        {"model.base_model.model.lm_head.modules_to_save.default.weight", 2, {10, 6}},
        {"model.base_model.model.wte.token_adapter.trainable_tokens_delta.default", 2, {1, 6}},
        {"model.base_model.model.wte.token_adapter.base_layer.weight", 2, {10, 6}},
    };
    cr_assert(find_adapters(t, COUNT(t)) == FSDPCK_OK, "%s", err.message);
    cr_assert_eq(lora_adapter_count(&set), 2);
    cr_assert(set.has_prefix && set.has_base);
    const lora_module *q = module_of("default", "model.layers.0.self_attn.q_proj", LORA_LINEAR);
#define S "base_model.model.model.layers.0."
    check_saved(q->a, S "self_attn.q_proj.lora_A.weight");
    check_saved(q->b, S "self_attn.q_proj.lora_B.weight");
    check_saved(q->b_bias, S "self_attn.q_proj.lora_B.bias");
    check_saved(q->magnitude, S "self_attn.q_proj.lora_magnitude_vector");
    check_saved(q->base_bias, S "self_attn.q_proj.base_layer.bias");
    cr_assert_eq(lora_cat_tensor(&set, q->base_weight), 0);
    cr_assert_eq(lora_cat_tensor(&set, q->a), 2);
    cr_assert_eq(lora_cat_tensor(&set, q->a_bias), CAT_NONE);
    q = module_of("other", "model.layers.0.self_attn.q_proj", LORA_LINEAR);
    cr_assert_eq(lora_cat_tensor(&set, q->a), 3);
    cr_assert_eq(q->magnitude, LORA_NONE);
    const lora_module *conv = module_of("default", "model.layers.0.conv", LORA_CONV);
    cr_assert_eq(lora_cat_tensor(&set, conv->base_weight), 9);
    const lora_module *e = module_of("default", "model.embed_tokens", LORA_EMBEDDING);
    check_saved(e->a, "base_model.model.model.embed_tokens.lora_embedding_A");
    cr_assert_eq(lora_cat_tensor(&set, e->base_weight), 12);
    const lora_module *head = module_of("default", "lm_head", LORA_SAVED);
    cr_assert_eq(lora_cat_tensor(&set, head->base_weight), 15);
    check_saved(16, "base_model.model.lm_head.weight");
    cr_assert_str_eq(lora_text(&set, lora_tensor_at(&set, 16)->base), "lm_head.weight");
    const lora_module *wte = module_of("default", "wte", LORA_TOKENS);
    check_saved(wte->tokens, "base_model.model.wte.token_adapter.trainable_tokens_delta");
    cr_assert_eq(lora_cat_tensor(&set, wte->base_weight), 18);
    /* Names of the base model. */
    cr_assert_str_eq(lora_text(&set, lora_tensor_at(&set, 0)->base),
                     "model.layers.0.self_attn.q_proj.weight");
    cr_assert_eq(lora_set_find_base(&set, "model.layers.0.norm.weight", 26), 8);
    release();
}

Test(lora_set, parameters_of_experts)
{
#define E "base_model.model.model.layers.0.mlp.experts."
    static const named_shape t[] = {
        {E "base_layer.base_layer.gate_up_proj", 3, {4, 10, 6}},
        {E "base_layer.base_layer.down_proj", 3, {4, 6, 5}},
        {E "lora_A.default.weight", 2, {8, 5}},
        {E "lora_B.default.weight", 2, {6, 8}},
        {E "base_layer.lora_A.default.weight", 2, {8, 6}},
        {E "base_layer.lora_B.default.weight", 2, {10, 8}},
    };
    static const char path[] = "model.layers.0.mlp.experts";
    cr_assert(find_adapters(t, COUNT(t)) == FSDPCK_OK, "%s", err.message);
    cr_assert_eq(lora_module_count(&set), 2);
    check_saved(4, E "base_layer.lora_A.weight");
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(lora_module_at(&set, i)->kind, LORA_PARAMETER);
        cr_assert_str_eq(lora_text(&set, lora_module_at(&set, i)->path), path);
        cr_assert_eq(lora_module_at(&set, i)->nesting, i);
    }
    cr_assert(lora_set_name_parameters(&set, &cat, NULL, &err) == FSDPCK_OK);
    cr_assert_str_eq(lora_text(&set, lora_module_at(&set, 0)->parameter), "down_proj");
    cr_assert_str_eq(lora_text(&set, lora_module_at(&set, 1)->parameter), "gate_up_proj");
    cr_assert_eq(lora_cat_tensor(&set, lora_module_at(&set, 1)->base_weight), 0);
    release();
}

/* Both parameters have one shape: without the base model's order, nothing tells them apart. */
Test(lora_set, equal_parameters_have_no_name)
{
    static const named_shape t[] = {
        {E "base_layer.base_layer.up_proj", 3, {4, 6, 6}},
        {E "base_layer.base_layer.down_proj", 3, {4, 6, 6}},
        {E "lora_A.default.weight", 2, {8, 6}},
        {E "lora_B.default.weight", 2, {6, 8}},
        {E "base_layer.lora_A.default.weight", 2, {8, 6}},
        {E "base_layer.lora_B.default.weight", 2, {6, 8}},
    };
    cr_assert(find_adapters(t, COUNT(t)) == FSDPCK_OK, "%s", err.message);
    cr_assert(lora_set_name_parameters(&set, &cat, NULL, &err) == FSDPCK_OK);
    for (size_t i = 0; i < 2; i++)
        cr_assert_eq(lora_module_at(&set, i)->parameter, LORA_NONE);
    release();
}

/* The base model is elsewhere: the config alone shows that the target is a parameter. */
Test(lora_set, parameter_by_the_config)
{
    static const char text[] =
        "{\"peft_type\": \"LORA\", \"target_parameters\": [\"mlp.experts.down_proj\"]}";
    static const named_shape t[] = {
        {E "lora_A.default.weight", 2, {8, 5}},
        {E "lora_B.default.weight", 2, {6, 8}},
    };
    lora_config config;
    cr_assert(find_adapters(t, COUNT(t)) == FSDPCK_OK, "%s", err.message);
    cr_assert_eq(lora_module_at(&set, 0)->kind, LORA_LINEAR);
    cr_assert(lora_config_read(text, strlen(text), NULL, &config, &err) == FSDPCK_OK);
    cr_assert(lora_set_name_parameters(&set, &cat, &config, &err) == FSDPCK_OK);
    cr_assert_eq(lora_module_at(&set, 0)->kind, LORA_PARAMETER);
    cr_assert_str_eq(lora_text(&set, lora_module_at(&set, 0)->parameter), "down_proj");
    lora_config_release(&config);
    release();
}

/* A file of PEFT: no name of an adapter, no base model, and a trained copy under its own name. */
Test(lora_set, adapter_file)
{
    static const named_shape t[] = {
        {"base_model.model.q.lora_A.weight", 2, {2, 6}},
        {"base_model.model.q.lora_B.weight", 2, {8, 2}},
        {"base_model.model.q.lora_magnitude_vector", 1, {8}},
        {"base_model.model.lm_head.weight", 2, {10, 6}},
    };
    cr_assert(find_adapters(t, COUNT(t)) == FSDPCK_OK, "%s", err.message);
    cr_assert_eq(lora_adapter_count(&set), 1);
    cr_assert_not(set.has_base);
    const lora_module *q = module_of("", "q", LORA_LINEAR);
    cr_assert_neq(q->magnitude, LORA_NONE);
    cr_assert_eq(lora_tensor_at(&set, 3)->role, LORA_ROLE_SAVED);
    for (uint32_t i = 0; i < COUNT(t); i++)
        check_saved(i, t[i].name);
    release();
}

/* Injected into a model, as transformers' add_adapter does. */
Test(lora_set, without_prefix)
{
    static const named_shape t[] = {
        {"model.q.base_layer.weight", 2, {8, 6}},
        {"model.q.lora_A.default.weight", 2, {2, 6}},
        {"model.q.lora_B.default.weight", 2, {8, 2}},
        {"model.hada_norm.weight", 1, {6}},
    };
    cr_assert(find_adapters(t, COUNT(t)) == FSDPCK_OK, "%s", err.message);
    cr_assert_not(set.has_prefix);
    check_saved(1, "base_model.model.model.q.lora_A.weight");
    cr_assert_eq(lora_tensor_at(&set, 3)->role, LORA_ROLE_BASE);
    release();
}

Test(lora_set, ordinary_model)
{
    static const named_shape t[] = {
        {"model.q.weight", 2, {8, 6}},
        {"model.base_layer.weight", 2, {8, 6}},
    };
    cr_assert(find_adapters(t, COUNT(t)) == FSDPCK_OK, "%s", err.message);
    cr_assert_eq(lora_module_count(&set), 0);
    cr_assert_eq(lora_adapter_count(&set), 0);
    cr_assert_str_eq(lora_text(&set, lora_tensor_at(&set, 1)->base), "model.base_layer.weight");
    release();
}

Test(lora_set, other_methods)
{
    static const char *const names[] = {
        "base_model.model.q.lora_A.default", /* AdaLoRA */
        "base_model.model.q.lora_E.default",
        "base_model.model.q.hada_w1_a.default",
        "base_model.model.q.lora_A.default.weight.more",
        "base_model.model.q.lora_embedding_A.",
        "base_model.model.q.modules_to_save..weight",
        "base_model.model.q.token_adapter.trainable_tokens_delta.",
    };
    for (size_t i = 0; i < COUNT(names); i++) {
        const named_shape t[] = {{names[i], 2, {8, 6}}};
        cr_assert(find_adapters(t, 1) == FSDPCK_OK, "%s", err.message);
        cr_assert_eq(lora_tensor_at(&set, 0)->role, LORA_ROLE_FOREIGN, "%s", names[i]);
        cr_assert_eq(lora_module_count(&set), 0);
        release();
    }
}

/* A mark needs the path of a module before it. */
Test(lora_set, no_path)
{
    static const named_shape t[] = {
        {"base_model.model..lora_A.default.weight", 2, {2, 6}},
        {"lora_B.default.weight", 2, {8, 2}},
        {"", 1, {2}},
    };
    cr_assert(find_adapters(t, COUNT(t)) == FSDPCK_OK, "%s", err.message);
    cr_assert_eq(lora_module_count(&set), 0);
    cr_assert_eq(lora_adapter_count(&set), 0);
    for (size_t i = 0; i < COUNT(t); i++)
        cr_assert_eq(lora_tensor_at(&set, i)->role, LORA_ROLE_BASE);
    release();
}

Test(lora_set, one_part_twice)
{
    static const named_shape t[] = {
        {"base_model.model.q.lora_A.default.weight", 2, {2, 6}},
        {"model.base_model.model.q.lora_A.default.weight", 2, {2, 6}},
    };
    cr_assert(find_adapters(t, COUNT(t)) == FSDPCK_BADINPUT);
    cr_assert_eq(err.finding, FSDPCK_FINDING_LORA_PAIR);
    release();
}
