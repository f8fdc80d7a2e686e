/* Square weights: whether they are [out, in] or [in, out]. */
#include "lora/merge_list.h"
#include "tests/unit/lora/lora_case.h"

#define MAX_TENSORS 12
#define CONFIG      "{\"r\": 2, \"lora_alpha\": 4}"
#define CONV1D      "{\"r\": 2, \"lora_alpha\": 4, \"fan_in_fan_out\": true}"

/* A square module with a bias. */
#define SQUARE                                                      \
    {"base_model.model.h.0.attn.p.base_layer.weight", 2, {6, 6}},   \
        {"base_model.model.h.0.attn.p.base_layer.bias", 1, {6}},    \
        {"base_model.model.h.0.attn.p.lora_A.d.weight", 2, {2, 6}}, \
    {                                                               \
        "base_model.model.h.0.attn.p.lora_B.d.weight", 2,           \
        {                                                           \
            6, 2                                                    \
        }                                                           \
    }

enum { LINEAR, TRANSPOSED, REFUSED };

static const struct {
    const char *what;
    named_shape more[MAX_TENSORS];
    const char *config;
    bool is_made;
    int expected;
} cases[] = {
    {"GPT-2: the weight beside it has a bias of the length of its second dim",
     {{"base_model.model.h.0.attn.c.weight", 2, {6, 18}},
      {"base_model.model.h.0.attn.c.bias", 1, {18}}},
     CONFIG,
     true,
     TRANSPOSED},
    {"likewise with the config of a mixed adapter",
     {{"base_model.model.h.0.attn.c.weight", 2, {6, 18}},
      {"base_model.model.h.0.attn.c.bias", 1, {18}}},
     CONFIG,
     false,
     TRANSPOSED},
    {"a classifier far away is linear",
     {{"base_model.model.score.weight", 2, {3, 6}},
      {"base_model.model.score.bias", 1, {3}},
      {"base_model.model.h.0.attn.c.weight", 2, {6, 18}},
      {"base_model.model.h.0.attn.c.bias", 1, {18}}},
     CONFIG,
     true,
     TRANSPOSED},
    {"BERT: another module of the layer",
     {{"base_model.model.h.0.mlp.weight", 2, {8, 6}}, {"base_model.model.h.0.mlp.bias", 1, {8}}},
     CONFIG,
     true,
     LINEAR},
    {"a decoder of Conv1D beside an encoder of linear modules",
     {{"base_model.model.h.0.mlp.weight", 2, {8, 6}},
      {"base_model.model.h.0.mlp.bias", 1, {8}},
      {"base_model.model.g.0.mlp.weight", 2, {6, 8}},
      {"base_model.model.g.0.mlp.bias", 1, {8}}},
     CONV1D,
     false,
     LINEAR},
    {"Qwen2: a square weight without bias in the layer",
     {{"base_model.model.h.0.attn.o.weight", 2, {6, 6}}},
     CONFIG,
     true,
     LINEAR},
    {"an embedding outside of layers shows nothing",
     {{"base_model.model.wte.weight", 2, {9, 6}}},
     CONFIG,
     true,
     REFUSED},
    {"no other weight", {{NULL}}, CONFIG, true, REFUSED},
    {"no other weight, but the config of the training", {{NULL}}, CONFIG, false, LINEAR},
    {"likewise of Conv1D", {{NULL}}, CONV1D, false, TRANSPOSED},
    {"weights of one module contradict each other",
     {{"base_model.model.h.0.attn.c.weight", 2, {6, 18}},
      {"base_model.model.h.0.attn.c.bias", 1, {18}},
      {"base_model.model.h.0.attn.l.weight", 2, {8, 6}},
      {"base_model.model.h.0.attn.l.bias", 1, {8}}},
     CONFIG,
     true,
     REFUSED},
};

/* Square modules without bias are linear, whatever the rest. */
static const named_shape llama[] = {
    {"base_model.model.h.0.attn.p.base_layer.weight", 2, {6, 6}},
    {"base_model.model.h.0.attn.p.lora_A.d.weight", 2, {2, 6}},
    {"base_model.model.h.0.attn.p.lora_B.d.weight", 2, {6, 2}},
};

static void check(const char *what, const named_shape *tensors, size_t count, const char *text,
                  bool is_made, int expected)
{
    lora_config config;
    merge_list list;
    const source none = {0};
    cr_assert(find_adapters(tensors, count) == FSDPCK_OK, "%s", err.message);
    cr_assert(lora_config_read(text, strlen(text), NULL, &config, &err) == FSDPCK_OK);
    config.is_made = is_made;
    const merge_checkpoint base = {.cat = &cat, .src = &none, .inputs = inputs, .count = count};
    merge_request request = {.name = "self", .config = &config};
    merge_list_init(&list, NULL);
    const fsdpck_status st = merge_list_make(&list, &base, &request, 1, false, &err);
    if (expected == REFUSED) {
        cr_expect(st == FSDPCK_BADINPUT && err.finding == FSDPCK_FINDING_LORA_SHAPE, "%s: %s", what,
                  err.message);
    } else {
        cr_expect(st == FSDPCK_OK, "%s: %s", what, err.message);
        cr_expect(list.steps.count == 1, "%s: %zu steps", what, list.steps.count);
        if (list.steps.count == 1)
            cr_expect(VEC_AT(&list.steps, const merge_step, 0)->transposed ==
                          (expected == TRANSPOSED),
                      "%s", what);
    }
    merge_list_release(&list);
    lora_config_release(&config);
    release();
}

Test(merge_orientation, square_weights)
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        named_shape tensors[MAX_TENSORS] = {SQUARE};
        size_t n = 4;
        for (; cases[i].more[n - 4].name != NULL; n++)
            tensors[n] = cases[i].more[n - 4];
        check(cases[i].what, tensors, n, cases[i].config, cases[i].is_made, cases[i].expected);
    }
    check("Llama", llama, COUNT(llama), CONFIG, true, LINEAR);
    /* PEFT corrects such a config when it loads the adapter. */
    check("Llama, with fan_in_fan_out", llama, COUNT(llama), CONV1D, false, LINEAR);
}
