#include <criterion/criterion.h>
#include <string.h>

#include "state/model_ties.h"

/* The values are those of transformers 5.23.0: AutoConfig of each text, as tie_defaults.py of the fixtures asks it. */
Test(model_ties, members_and_defaults)
{
    static const struct {
        const char *text;
        model_ties ties;
    } cases[] = {
        {"{\"model_type\": \"llama\"}", MODEL_TIES_NO},
        {"{\"model_type\": \"gemma\"}", MODEL_TIES_YES},
        {"{\"model_type\": \"gpt2\", \"x\": {\"tie_word_embeddings\": false}}", MODEL_TIES_YES},
        {"{\"tie_word_embeddings\": true, \"model_type\": \"llama\"}", MODEL_TIES_YES},
        {"{\"tie_word_embeddings\": false, \"model_type\": \"gemma\"}", MODEL_TIES_NO},
        {"{\"tie_word_embeddings\": null, \"model_type\": \"gemma3\"}", MODEL_TIES_NO},
        /* text_config does not count, ... */
        {"{\"model_type\": \"gemma3\", \"text_config\": {\"tie_word_embeddings\": false}}",
         MODEL_TIES_YES},
        {"{\"model_type\": \"qwen3_vl\", \"text_config\": {\"tie_word_embeddings\": true}}",
         MODEL_TIES_NO},
        /* ... except in some families: its default too. */
        {"{\"model_type\": \"llava\", \"text_config\": {\"tie_word_embeddings\": true}}",
         MODEL_TIES_YES},
        {"{\"model_type\": \"llava\", \"tie_word_embeddings\": false, "
         "\"text_config\": {\"tie_word_embeddings\": true}}",
         MODEL_TIES_YES},
        {"{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"gemma2\"}}",
         MODEL_TIES_YES},
        {"{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"llama\"}}",
         MODEL_TIES_NO},
        {"{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"no such\"}}",
         MODEL_TIES_UNKNOWN},
        {"{\"model_type\": \"llava\"}", MODEL_TIES_NO},
        /* Types that the table lacks. */
        {"{\"model_type\": \"no such\"}", MODEL_TIES_UNKNOWN},
        {"{\"model_type\": [\"llama\"]}", MODEL_TIES_UNKNOWN},
        {"{}", MODEL_TIES_UNKNOWN},
        {"{\"text_config\": {\"tie_word_embeddings\": true}}", MODEL_TIES_YES},
        {"{\"text_config\": {\"tie_word_embeddings\": true}, \"tie_word_embeddings\": false}",
         MODEL_TIES_NO},
        /* No config.json. */
        {"[\"llama\"]", MODEL_TIES_UNKNOWN},
        {"{\"model_type\": \"llama\"", MODEL_TIES_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(model_ties_read(cases[i].text, strlen(cases[i].text)), cases[i].ties, "%s",
                     cases[i].text);
}

Test(model_ties, a_default_is_told_from_a_member)
{
    bool by_default;
    model_ties_config c = {.top = {.type = "llama"}};
    cr_expect_eq(model_ties_of(&c, &by_default), MODEL_TIES_NO);
    cr_expect(by_default);
    c.top.ties = MODEL_TIES_NO;
    cr_expect_eq(model_ties_of(&c, &by_default), MODEL_TIES_NO);
    cr_expect_not(by_default);
    c = (model_ties_config){.top = {.type = "x"}};
    cr_expect_eq(model_ties_of(&c, &by_default), MODEL_TIES_UNKNOWN);
    cr_expect_not(by_default);
}

Test(model_ties, modules_of_tied_embeddings)
{
    cr_expect_str_eq(model_ties_module("llama"), "embed_tokens");
    cr_expect_str_eq(model_ties_module("gpt2"), "wte");
    cr_expect_str_eq(model_ties_module("bart"), "shared");
    cr_expect_null(model_ties_module("bert")); /* its head has another name */
    cr_expect_null(model_ties_module("no such"));
}
