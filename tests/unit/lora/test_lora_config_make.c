/* The config that is made of the tensors of fused experts. */
#include "lora/lora_check.h"
#include "tests/unit/lora/lora_case.h"

/* A layer of transformers 5 with r of q, of gate_up_proj and of down_proj; 3 experts. */
#define FUSED(q, gate_up, down)                                                              \
    {                                                                                        \
        {"base_model.model.q.base_layer.weight", 2, {8, 6}},                                 \
            {"base_model.model.q.lora_A.default.weight", 2, {q, 6}},                         \
            {"base_model.model.q.lora_B.default.weight", 2, {8, q}},                         \
            {"base_model.model.x.base_layer.base_layer.gate_up_proj", 3, {3, 10, 6}},        \
            {"base_model.model.x.base_layer.base_layer.down_proj", 3, {3, 6, 5}},            \
            {"base_model.model.x.base_layer.lora_A.default.weight", 2, {3 * (gate_up), 6}},  \
            {"base_model.model.x.base_layer.lora_B.default.weight", 2, {10, 3 * (gate_up)}}, \
            {"base_model.model.x.lora_A.default.weight", 2, {3 * (down), 5}},                \
            {"base_model.model.x.lora_B.default.weight", 2, {6, 3 * (down)}},                \
    }

/* PEFT 0.21.2 doubles r and lora_alpha of gate_up_proj for target_modules of gate_proj and up_proj, but not
 * for target_parameters. */
Test(lora_config_make, fused_experts)
{
    static const struct {
        const char *what;
        named_shape tensors[9];
        uint64_t r; /* stated */
        bool refused;
    } cases[] = {
        {"doubled", FUSED(4, 8, 4), 0, true},
        {"doubled, as stated", FUSED(4, 8, 4), 4, true},
        {"doubled, with another pattern", FUSED(2, 8, 4), 4, true},
        {"one rank", FUSED(4, 4, 4), 0, false},
        {"one rank, as stated", FUSED(4, 4, 4), 4, false},
        {"other modules are smaller than stated", FUSED(4, 8, 4), 8, false},
        {"three times", FUSED(4, 12, 4), 0, false},
        {"odd", FUSED(4, 9, 4), 0, false},
        {"a half", FUSED(4, 2, 4), 0, false},
        {"down_proj", FUSED(4, 4, 8), 0, false},
        {"mixed", FUSED(2, 8, 4), 0, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const lora_facts facts = {.has_alpha = true, .alpha = 8, .r = cases[i].r};
        text_buf text = {0};
        cr_assert(find_adapters(cases[i].tensors, COUNT(cases[i].tensors)) == FSDPCK_OK, "%s",
                  err.message);
        cr_assert(lora_set_name_parameters(&set, &cat, NULL, &err) == FSDPCK_OK);
        const fsdpck_status st = lora_config_make(&set, &cat, 0, &facts, &text, &err);
        cr_assert(st == (cases[i].refused ? FSDPCK_BADINPUT : FSDPCK_OK), "%s: %s", cases[i].what,
                  err.message);
        if (cases[i].refused) {
            cr_assert_eq(err.finding, FSDPCK_FINDING_LORA_CONFIG);
            cr_assert_not_null(strstr(err.message, "'x.gate_up_proj'"), "%s", err.message);
        }
        text_release(&text);
        release();
    }
}
