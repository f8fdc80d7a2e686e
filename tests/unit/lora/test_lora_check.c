/* Checks of adapters, and the config that is made of tensors. */
#include "lora/lora_check.h"
#include "lora/lora_extract.h"
#include "tests/unit/lora/lora_case.h"

static fsdpck_error first;
static unsigned faults;

static void find(const named_shape *tensors, size_t count)
{
    cr_assert(find_adapters(tensors, count) == FSDPCK_OK, "%s", err.message);
}

static fsdpck_status count_fault(void *ctx, const fsdpck_error *fault, fsdpck_error *e)
{
    (void)ctx;
    (void)e;
    if (faults++ == 0)
        first = *fault;
    return FSDPCK_OK;
}

/* The finding of the only fault. */
static fsdpck_finding_id check_all(const char *config_text)
{
    lora_config config;
    faults = 0;
    fsdpck_error_init(&first);
    if (config_text != NULL)
        cr_assert(lora_config_read(config_text, strlen(config_text), NULL, &config, &err) ==
                      FSDPCK_OK,
                  "%s", err.message);
    cr_assert(lora_set_name_parameters(&set, &cat, config_text == NULL ? NULL : &config, &err) ==
              FSDPCK_OK);
    cr_assert(lora_check(&set, &cat, 0, config_text == NULL ? NULL : &config, count_fault, NULL,
                         &err) == FSDPCK_OK);
    if (config_text != NULL)
        lora_config_release(&config);
    cr_assert_leq(faults, 1, "%u faults, the first: %s", faults, first.message);
    return first.finding;
}

#define GOOD                                                     \
    {"base_model.model.q.base_layer.weight", 2, {8, 6}},         \
        {"base_model.model.q.lora_A.default.weight", 2, {2, 6}}, \
    {                                                            \
        "base_model.model.q.lora_B.default.weight", 2,           \
        {                                                        \
            8, 2                                                 \
        }                                                        \
    }
#define CONFIG "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q\"]}"

/* The layers 8, 9 without an adapter, and 10; of five tensors, layer 10 has none. */
#define LAYERS                                                               \
    {"base_model.model.m.layers.8.q.base_layer.weight", 2, {8, 6}},          \
        {"base_model.model.m.layers.8.q.lora_A.default.weight", 2, {2, 6}},  \
        {"base_model.model.m.layers.8.q.lora_B.default.weight", 2, {8, 2}},  \
        {"base_model.model.m.layers.9.q.weight", 2, {8, 6}},                 \
        {"base_model.model.m.layers.10.q.weight", 2, {8, 6}},                \
        {"base_model.model.m.layers.10.q.lora_A.default.weight", 2, {2, 6}}, \
    {                                                                        \
        "base_model.model.m.layers.10.q.lora_B.default.weight", 2,           \
        {                                                                    \
            8, 2                                                             \
        }                                                                    \
    }
#define LAYERS_CONFIG(more) "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q\"]" more "}"

/* Parameters of the layers 8, 9 without an adapter, and 10; of four tensors, layer 10 has none. */
#define EXPERTS                                                           \
    {"base_model.model.l.8.x.base_layer.down", 3, {3, 6, 5}},             \
        {"base_model.model.l.8.x.lora_A.default.weight", 2, {3 * 2, 5}},  \
        {"base_model.model.l.8.x.lora_B.default.weight", 2, {6, 3 * 2}},  \
        {"base_model.model.l.9.x.down", 3, {3, 6, 5}},                    \
        {"base_model.model.l.10.x.base_layer.down", 3, {3, 6, 5}},        \
        {"base_model.model.l.10.x.lora_A.default.weight", 2, {3 * 2, 5}}, \
    {                                                                     \
        "base_model.model.l.10.x.lora_B.default.weight", 2,               \
        {                                                                 \
            6, 3 * 2                                                      \
        }                                                                 \
    }
#define EXPERTS_CONFIG(names) \
    "{\"r\": 2, \"lora_alpha\": 4, \"target_parameters\": [\"" names "\"]}"

static const struct {
    const char *what;
    named_shape tensors[8];
    size_t count;
    const char *config;
    fsdpck_finding_id finding;
} rows[] = {
    {"good", {GOOD}, 3, CONFIG, FSDPCK_FINDING_NONE},
    {"good without config", {GOOD}, 3, NULL, FSDPCK_FINDING_NONE},
    {"A without B",
     {{"base_model.model.q.lora_A.default.weight", 2, {2, 6}}},
     1,
     CONFIG,
     FSDPCK_FINDING_LORA_PAIR},
    {"B without A",
     {{"base_model.model.q.lora_B.default.weight", 2, {8, 2}}},
     1,
     CONFIG,
     FSDPCK_FINDING_LORA_PAIR},
    {"a vector without its pair",
     {{"base_model.model.q.lora_magnitude_vector.default.weight", 1, {8}}},
     1,
     NULL,
     FSDPCK_FINDING_LORA_PAIR},
    {"one vector is missing",
     {GOOD,
      {"base_model.model.q.lora_magnitude_vector.default.weight", 1, {8}},
      {"base_model.model.k.lora_A.default.weight", 2, {2, 6}},
      {"base_model.model.k.lora_B.default.weight", 2, {8, 2}}},
     6,
     NULL,
     FSDPCK_FINDING_LORA_PAIR},
    {"a vector of another size",
     {GOOD, {"base_model.model.q.lora_magnitude_vector.default.weight", 1, {6}}},
     4,
     NULL,
     FSDPCK_FINDING_LORA_SHAPE},
    {"ranks of A and B",
     {{"base_model.model.q.lora_A.default.weight", 2, {2, 6}},
      {"base_model.model.q.lora_B.default.weight", 2, {8, 3}}},
     2,
     NULL,
     FSDPCK_FINDING_LORA_RANK},
    {"rank 4 of the config",
     {GOOD},
     3,
     "{\"r\": 4, \"lora_alpha\": 4, \"target_modules\": [\"q\"]}",
     FSDPCK_FINDING_LORA_RANK},
    {"rank of the pattern",
     {GOOD},
     3,
     "{\"r\": 4, \"lora_alpha\": 4, \"target_modules\": [\"q\"], \"rank_pattern\": {\"q\": 2}}",
     FSDPCK_FINDING_NONE},
    /* accelerate 4206: rank 0 of 4 saved its own rows of A [8, 6] and of B [8, 8]. */
    {"the slice of one rank",
     {{"base_model.model.q.lora_A.default.weight", 2, {2, 6}},
      {"base_model.model.q.lora_B.default.weight", 2, {2, 8}}},
     2,
     "{\"r\": 8, \"lora_alpha\": 4, \"target_modules\": [\"q\"]}",
     FSDPCK_FINDING_LORA_RANK},
    {"a flattened A",
     {{"base_model.model.q.lora_A.default.weight", 1, {12}},
      {"base_model.model.q.lora_B.default.weight", 2, {8, 2}}},
     2,
     CONFIG,
     FSDPCK_FINDING_LORA_SHAPE},
    {"another base model",
     {{"base_model.model.q.base_layer.weight", 2, {8, 5}},
      {"base_model.model.q.lora_A.default.weight", 2, {2, 6}},
      {"base_model.model.q.lora_B.default.weight", 2, {8, 2}}},
     3,
     NULL,
     FSDPCK_FINDING_LORA_SHAPE},
    {"[in, out] needs fan_in_fan_out",
     {{"base_model.model.q.base_layer.weight", 2, {6, 8}},
      {"base_model.model.q.lora_A.default.weight", 2, {2, 6}},
      {"base_model.model.q.lora_B.default.weight", 2, {8, 2}}},
     3,
     CONFIG,
     FSDPCK_FINDING_LORA_SHAPE},
    {"fan_in_fan_out",
     {{"base_model.model.q.base_layer.weight", 2, {6, 8}},
      {"base_model.model.q.lora_A.default.weight", 2, {2, 6}},
      {"base_model.model.q.lora_B.default.weight", 2, {8, 2}}},
     3,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q\"], \"fan_in_fan_out\": true}",
     FSDPCK_FINDING_NONE},
    /* PEFT sets it to false for an adapter of Conv1D and linear modules. */
    {"[in, out] beside lm_head",
     {{"base_model.model.q.base_layer.weight", 2, {6, 8}},
      {"base_model.model.q.lora_A.default.weight", 2, {2, 6}},
      {"base_model.model.q.lora_B.default.weight", 2, {8, 2}},
      {"base_model.model.lm_head.lora_A.default.weight", 2, {2, 6}},
      {"base_model.model.lm_head.lora_B.default.weight", 2, {9, 2}}},
     5,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q\", \"lm_head\"]}",
     FSDPCK_FINDING_NONE},
    {"the first index of a path is the layer",
     {{"base_model.model.encoder.block.1.layer.0.q.lora_A.weight", 2, {2, 6}},
      {"base_model.model.encoder.block.1.layer.0.q.lora_B.weight", 2, {8, 2}}},
     2,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q\"], \"layers_to_transform\": [1]}",
     FSDPCK_FINDING_NONE},
    {"the last index of a path is no layer",
     {{"base_model.model.encoder.block.1.layer.0.q.lora_A.weight", 2, {2, 6}},
      {"base_model.model.encoder.block.1.layer.0.q.lora_B.weight", 2, {8, 2}}},
     2,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q\"], \"layers_to_transform\": [0]}",
     FSDPCK_FINDING_LORA_CONFIG},
    {"nn.MultiheadAttention, with the rank of its own name in both",
     {{"base_model.model.a.base_layer.in_proj_weight", 2, {18, 6}},
      {"base_model.model.a.lora_A.default.weight", 2, {2, 6}},
      {"base_model.model.a.lora_B.default.weight", 2, {18, 2}},
      {"base_model.model.a.base_layer.out_proj.base_layer.weight", 2, {6, 6}},
      {"base_model.model.a.base_layer.out_proj.lora_A.default.weight", 2, {2, 6}},
      {"base_model.model.a.base_layer.out_proj.lora_B.default.weight", 2, {6, 2}}},
     6,
     "{\"r\": 4, \"lora_alpha\": 4, \"target_modules\": [\"a\"], \"rank_pattern\": {\"a\": 2, "
     "\"out_proj\": 4}}",
     FSDPCK_FINDING_NONE},
    {"nn.MultiheadAttention of another shape",
     {{"base_model.model.a.base_layer.in_proj_weight", 2, {12, 6}},
      {"base_model.model.a.lora_A.default.weight", 2, {2, 6}},
      {"base_model.model.a.lora_B.default.weight", 2, {18, 2}},
      {"base_model.model.a.base_layer.out_proj.lora_A.default.weight", 2, {2, 6}},
      {"base_model.model.a.base_layer.out_proj.lora_B.default.weight", 2, {6, 2}}},
     5,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"a\"]}",
     FSDPCK_FINDING_LORA_SHAPE},
    {"embedding",
     {{"base_model.model.e.base_layer.weight", 2, {10, 6}},
      {"base_model.model.e.lora_embedding_A.default", 2, {2, 10}},
      {"base_model.model.e.lora_embedding_B.default", 2, {6, 2}}},
     3,
     NULL,
     FSDPCK_FINDING_NONE},
    {"embedding of another vocabulary",
     {{"base_model.model.e.base_layer.weight", 2, {11, 6}},
      {"base_model.model.e.lora_embedding_A.default", 2, {2, 10}},
      {"base_model.model.e.lora_embedding_B.default", 2, {6, 2}}},
     3,
     NULL,
     FSDPCK_FINDING_LORA_SHAPE},
    {"experts",
     {{"base_model.model.x.base_layer.down", 3, {4, 8, 6}},
      {"base_model.model.x.lora_A.default.weight", 2, {8, 6}},
      {"base_model.model.x.lora_B.default.weight", 2, {8, 8}}},
     3,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_parameters\": [\"x.down\"]}",
     FSDPCK_FINDING_NONE},
    {"experts of another rank",
     {{"base_model.model.x.base_layer.down", 3, {4, 8, 6}},
      {"base_model.model.x.lora_A.default.weight", 2, {8, 6}},
      {"base_model.model.x.lora_B.default.weight", 2, {8, 8}}},
     3,
     "{\"r\": 4, \"lora_alpha\": 4, \"target_parameters\": [\"x.down\"]}",
     FSDPCK_FINDING_LORA_RANK},
    {"convolution",
     {{"base_model.model.c.base_layer.weight", 4, {8, 6, 3, 3}},
      {"base_model.model.c.lora_A.default.weight", 4, {2, 6, 3, 3}},
      {"base_model.model.c.lora_B.default.weight", 4, {8, 2, 1, 1}}},
     3,
     NULL,
     FSDPCK_FINDING_NONE},
    {"rows of trained tokens",
     {{"base_model.model.e.token_adapter.base_layer.weight", 2, {10, 6}},
      {"base_model.model.e.token_adapter.trainable_tokens_delta.default", 2, {3, 5}}},
     2,
     NULL,
     FSDPCK_FINDING_LORA_SHAPE},
    {"DoRA that the config lacks",
     {GOOD, {"base_model.model.q.lora_magnitude_vector.default.weight", 1, {8}}},
     4,
     CONFIG,
     FSDPCK_FINDING_LORA_CONFIG},
    {"DoRA that the tensors lack",
     {GOOD},
     3,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q\"], \"use_dora\": true}",
     FSDPCK_FINDING_LORA_CONFIG},
    {"bias of B that the config lacks",
     {GOOD, {"base_model.model.q.lora_B.default.bias", 1, {8}}},
     4,
     CONFIG,
     FSDPCK_FINDING_LORA_CONFIG},
    {"another target",
     {GOOD},
     3,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"k\"]}",
     FSDPCK_FINDING_LORA_CONFIG},
    {"a module that the config does not save",
     {GOOD, {"base_model.model.h.modules_to_save.default.weight", 2, {4, 6}}},
     4,
     CONFIG,
     FSDPCK_FINDING_LORA_CONFIG},
    {"a saved module by the end of its name, as PEFT finds it",
     {GOOD, {"base_model.model.input_layernorm.modules_to_save.default.weight", 1, {6}}},
     4,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q\"], \"modules_to_save\": [\"norm\"]}",
     FSDPCK_FINDING_NONE},
    {"a saved module without its tensor",
     {GOOD, {"base_model.model.lm_head.original_module.weight", 2, {4, 6}}},
     4,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q\"], \"modules_to_save\": "
     "[\"lm_head\"]}",
     FSDPCK_FINDING_LORA_PAIR},
    {"a module that the model lacks",
     {GOOD},
     3,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q\"], \"modules_to_save\": [\"score\"]}",
     FSDPCK_FINDING_NONE},
    {"a lost module before another layer",
     {LAYERS},
     7,
     LAYERS_CONFIG(""),
     FSDPCK_FINDING_LORA_PAIR},
    {"a layer behind those of the training", {LAYERS}, 5, LAYERS_CONFIG(""), FSDPCK_FINDING_NONE},
    {"an excluded module",
     {LAYERS},
     7,
     LAYERS_CONFIG(", \"exclude_modules\": [\"layers.9.q\"]"),
     FSDPCK_FINDING_NONE},
    {"layers of the training",
     {LAYERS},
     7,
     LAYERS_CONFIG(", \"layers_to_transform\": [8, 10]"),
     FSDPCK_FINDING_NONE},
    {"layers by a pattern",
     {LAYERS},
     7,
     LAYERS_CONFIG(", \"layers_to_transform\": [8, 10], \"layers_pattern\": [\"layers\"]"),
     FSDPCK_FINDING_NONE},
    {"a layer that was not trained",
     {LAYERS},
     7,
     LAYERS_CONFIG(", \"layers_to_transform\": [8]"),
     FSDPCK_FINDING_LORA_CONFIG},
    {"a lost parameter before another layer",
     {EXPERTS},
     7,
     EXPERTS_CONFIG("x.down"),
     FSDPCK_FINDING_LORA_PAIR},
    {"a parameter of two layers",
     {EXPERTS},
     7,
     EXPERTS_CONFIG("l.8.x.down\", \"l.10.x.down"),
     FSDPCK_FINDING_NONE},
    {"a parameter behind those of the training",
     {EXPERTS},
     4,
     EXPERTS_CONFIG("x.down"),
     FSDPCK_FINDING_NONE},
    {"a lost parameter inside its wrapper",
     {GOOD, {"base_model.model.x.base_layer.down", 3, {3, 6, 5}}},
     4,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q\"], \"target_parameters\": "
     "[\"x.down\"]}",
     FSDPCK_FINDING_LORA_PAIR},
    {"all linear modules",
     {GOOD},
     3,
     "{\"r\": 2, \"lora_alpha\": 4, \"target_modules\": \"all-linear\"}",
     FSDPCK_FINDING_NONE},
    {"another method",
     {GOOD, {"base_model.model.q.lora_E.default", 1, {4}}},
     4,
     CONFIG,
     FSDPCK_FINDING_LORA_KIND},
};

Test(lora_check, faults)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        find(rows[i].tensors, rows[i].count);
        const fsdpck_finding_id found = check_all(rows[i].config);
        cr_assert_eq(found, rows[i].finding, "%s: %s", rows[i].what, first.message);
        release();
    }
}

static void check_made(const lora_facts *facts, const char *const *parts, size_t count)
{
    text_buf text = {0};
    cr_assert(lora_set_name_parameters(&set, &cat, NULL, &err) == FSDPCK_OK);
    cr_assert(lora_config_make(&set, &cat, 0, facts, &text, &err) == FSDPCK_OK, "%s", err.message);
    for (size_t i = 0; i < count; i++)
        cr_assert_not_null(strstr(text.text, parts[i]), "no %s in %s", parts[i], text.text);
    cr_assert_eq(check_all(text.text), FSDPCK_FINDING_NONE, "%s", first.message);
    text_release(&text);
}

/* "q" stands for both modules; not "k", which one layer has without an adapter. */
Test(lora_config_make, from_tensors)
{
    static const named_shape t[] = {
        {"base_model.model.l.0.q.base_layer.weight", 2, {8, 6}},
        {"base_model.model.l.0.q.lora_A.default.weight", 2, {2, 6}},
        {"base_model.model.l.0.q.lora_B.default.weight", 2, {8, 2}},
        {"base_model.model.l.1.q.base_layer.weight", 2, {8, 6}},
        {"base_model.model.l.1.q.lora_A.default.weight", 2, {2, 6}},
        {"base_model.model.l.1.q.lora_B.default.weight", 2, {8, 2}},
        {"base_model.model.l.0.k.base_layer.weight", 2, {8, 6}},
        {"base_model.model.l.0.k.lora_A.default.weight", 2, {3, 6}},
        {"base_model.model.l.0.k.lora_B.default.weight", 2, {8, 3}},
        {"base_model.model.l.1.k.weight", 2, {8, 6}},
        {"base_model.model.h.modules_to_save.default.weight", 2, {8, 6}},
        {"base_model.model.h.original_module.weight", 2, {8, 6}},
    };
    static const char *const parts[] = {"\"r\": 2,",
                                        "\"^l.0.k\": 3",
                                        "\"target_modules\": [\n    \"q\",\n    \"l.0.k\"\n  ]",
                                        "\"modules_to_save\": [\n    \"h\"\n  ]",
                                        "\"lora_alpha\": 7.5",
                                        "\"use_rslora\": true",
                                        "\"task_type\": \"CAUSAL_LM\"",
                                        "\"base_model_name_or_path\": null",
                                        "\"use_dora\": false"};
    const lora_facts facts = {
        .has_alpha = true, .alpha = 7.5, .use_rslora = true, .task_type = "CAUSAL_LM"};
    find(t, COUNT(t));
    check_made(&facts, parts, COUNT(parts));
    release();
}

/* No base model shows whether other modules end so: paths are whole. Biases are those that were trained. */
Test(lora_config_make, adapter_alone)
{
    static const named_shape t[] = {
        {"base_model.model.l.0.q.lora_A.default.weight", 2, {2, 6}},
        {"base_model.model.l.0.q.lora_B.default.weight", 2, {8, 2}},
        {"base_model.model.l.0.q.base_layer.bias", 1, {8}},
    };
    static const char *const parts[] = {"\"l.0.q\"", "\"bias\": \"lora_only\""};
    const lora_facts facts = {.has_alpha = true, .alpha = 1};
    bool chosen[COUNT(t)];
    find(t, COUNT(t));
    check_made(&facts, parts, COUNT(parts));
    lora_choose(&set, &cat, 0, NULL, chosen);
    cr_assert(chosen[0] && chosen[1] && chosen[2]);
    release();
}

Test(lora_config_make, missing_facts)
{
    static const struct {
        named_shape tensors[4];
        size_t count;
        const char *member;
    } cases[] = {
        {{GOOD}, 3, "lora_alpha"},
        {{GOOD, {"base_model.model.e.token_adapter.trainable_tokens_delta.default", 2, {3, 5}}},
         4,
         "trainable_token_indices"},
        {{{"base_model.model.x.lora_A.default.weight", 2, {8, 6}},
          {"base_model.model.x.lora_B.default.weight", 2, {8, 8}},
          {"base_model.model.x.base_layer.lora_A.default.weight", 2, {8, 6}},
          {"base_model.model.x.base_layer.lora_B.default.weight", 2, {8, 8}}},
         4,
         "target_parameters"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const lora_facts facts = {.has_alpha = i > 0, .alpha = 1};
        text_buf text = {0};
        find(cases[i].tensors, cases[i].count);
        cr_assert(lora_config_make(&set, &cat, 0, &facts, &text, &err) == FSDPCK_USAGE);
        cr_assert_eq(err.finding, FSDPCK_FINDING_LORA_CONFIG);
        cr_assert_not_null(strstr(err.message, cases[i].member), "%s", err.message);
        text_release(&text);
        release();
    }
}
