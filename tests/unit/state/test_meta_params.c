#include <criterion/criterion.h>
#include <string.h>

#include "state/meta_params.h"

static meta_params read_text(const char *text, fsdpck_status expected)
{
    meta_params p;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    cr_assert(meta_params_read(text, strlen(text), &p, &err) == expected, "%s: %s", text,
              err.message);
    if (expected != FSDPCK_OK)
        cr_assert(err.finding == FSDPCK_FINDING_MAP_CONFIG);
    return p;
}

Test(meta_params, of_llama)
{
    const meta_params p =
        read_text("{\"dim\": 4096, \"n_layers\": 32, \"n_heads\": 32, \"n_kv_heads\": 8, "
                  "\"vocab_size\": 128256, \"multiple_of\": 1024, \"ffn_dim_multiplier\": 1.3, "
                  "\"norm_eps\": 1e-05, \"rope_theta\": 500000.0, \"use_scaled_rope\": true}",
                  FSDPCK_OK);
    cr_assert(meta_params_are_of_model(&p));
    cr_assert(p.dim == 4096 && p.layers == 32 && p.heads == 32 && p.kv_heads == 8);
    cr_assert(p.norm_eps == 1e-05 && p.rope_theta == 500000 && p.scaled_rope == JSON_TRUE);
    cr_assert(p.head_dim == 0 && meta_params_head_dim(&p) == 128);
}

Test(meta_params, absent_null_and_odd_members)
{
    meta_params p =
        read_text("{\"n_kv_heads\": null, \"vocab_size\": -1, \"n_heads\": 4, \"dim\": 10, "
                  "\"use_scaled_rope\": \"yes\", \"norm_eps\": -1, \"x\": [{\"dim\": 3}], "
                  "\"rope_theta\": 100000000000000000000000000000000000000000000000000.5}",
                  FSDPCK_OK);
    cr_assert(meta_params_are_of_model(&p));
    cr_assert(p.dim == 10 && p.heads == 4 && p.kv_heads == 0 && p.layers == 0);
    cr_assert(p.norm_eps == 0 && p.rope_theta == 0 && p.scaled_rope == JSON_END);
    cr_assert(meta_params_head_dim(&p) == 0, "10 rows are no 4 heads");
    p = read_text("{\"lr\": 0.1, \"dim\": 8}", FSDPCK_OK);
    cr_assert(!meta_params_are_of_model(&p));
}

Test(meta_params, inside_model)
{
    const meta_params p =
        read_text("{\"n_heads\": 1, \"model\": {\"n_heads\": 12, \"dim\": 24, "
                  "\"head_dim\": 3, \"use_scaled_rope\": false, \"model\": {\"dim\": 9}}}",
                  FSDPCK_OK);
    cr_assert(p.heads == 12 && p.dim == 24 && meta_params_head_dim(&p) == 3);
    cr_assert(p.scaled_rope == JSON_FALSE);
}

Test(meta_params, refused)
{
    static const char *const texts[] = {"",
                                        "[]",
                                        "{\"dim\": 4",
                                        "{\"dim\": 4} {}",
                                        "null",
                                        "{\"dim\": }",
                                        "{\"model\": {\"dim\": 4}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        read_text(texts[i], FSDPCK_BADINPUT);
}
