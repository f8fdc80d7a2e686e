#include <criterion/criterion.h>

#include "model/weight_role.h"

Test(weight_role, names_of_families)
{
    static const char *const tables[] = {"model.embed_tokens.weight", "transformer.wte.weight",
                                         "lm_head.weight", "gpt_neox.word_embeddings.weight"};
    static const char *const norms[] = {"model.norm.weight",
                                        "model.layers.3.input_layernorm.weight",
                                        "transformer.h.0.ln_1.weight", "ln_f.weight"};
    static const char *const others[] = {"vision_model.embed_tokens.weight",
                                         "model.visual.ln_1.weight",
                                         "model.layers.0.q_proj.weight",
                                         "embed_tokens.bias",
                                         "",
                                         "weight",
                                         "base.lm_head.lora_A.lm_head.weight"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        cr_expect_eq(weight_role_of(tables[i]), WEIGHT_TABLE, "%s", tables[i]);
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        cr_expect_eq(weight_role_of(norms[i]), WEIGHT_NORM, "%s", norms[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_expect_eq(weight_role_of(others[i]), WEIGHT_OTHER, "%s", others[i]);
}

/* Words that only end as a part does: other modules, of other sizes. */
Test(weight_role, whole_parts)
{
    cr_expect_eq(weight_role_of("model.pos_wte.weight"), WEIGHT_OTHER);
    cr_expect_eq(weight_role_of("model.sub_embed_tokens.weight"), WEIGHT_OTHER);
    cr_expect_eq(weight_role_of("xln_f.weight"), WEIGHT_OTHER);
    cr_expect_eq(weight_role_of("block_model.norm.weight"), WEIGHT_OTHER);
}
