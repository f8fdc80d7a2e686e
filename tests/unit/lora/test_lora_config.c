/* adapter_config.json: numbers of modules, patterns, refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "lora/lora.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static fsdpck_error err;
static lora_config config;

static fsdpck_status read(const char *text)
{
    fsdpck_error_init(&err);
    return lora_config_read(text, strlen(text), NULL, &config, &err);
}

static lora_numbers numbers_of(const char *path)
{
    lora_numbers n;
    cr_assert(lora_config_numbers(&config, path, strlen(path), &n, &err) == FSDPCK_OK, "%s",
              err.message);
    return n;
}

/* The order of the keys counts, and re.match(r"(.*\.)?(KEY)$", path): "q_proj" does not match
 * "xq_proj". */
Test(lora_config, patterns)
{
    cr_assert(read("{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16.5,"
                   "\"rank_pattern\": {\"layers.1.q_proj\": 4, \"q_proj\": 32, "
                   "\"^model.layers.[02].k_proj\": 2},"
                   "\"alpha_pattern\": {\"(q|k)_proj\": 2}, \"eva_config\": {\"rho\": [1, {}]}}") ==
                  FSDPCK_OK,
              "%s", err.message);
    static const struct {
        const char *path;
        uint64_t r;
        double alpha;
    } rows[] = {
        {"model.layers.1.q_proj", 4, 2},
        {"model.layers.11.q_proj", 32, 2},
        {"q_proj", 32, 2},
        {"xq_proj", 8, 16.5},
        {"model.layers.0.k_proj", 2, 2},
        {"model.layers.1.k_proj", 8, 2},
        {"x.model.layers.0.k_proj", 8, 2},
        {"model.layers.1.q_proj.x", 8, 16.5},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const lora_numbers n = numbers_of(rows[i].path);
        cr_assert_eq(n.r, rows[i].r, "%s", rows[i].path);
        cr_assert(n.alpha == rows[i].alpha, "%s", rows[i].path);
        cr_assert(n.scaling == rows[i].alpha / (double)rows[i].r);
    }
    lora_config_release(&config);
}

Test(lora_config, members)
{
    cr_assert(read("{\"r\": 16, \"lora_alpha\": 32, \"use_rslora\": true, \"use_dora\": true,"
                   "\"fan_in_fan_out\": true, \"lora_bias\": false, \"bias\": \"lora_only\","
                   "\"target_modules\": [\"q_proj\", \"up\"], \"modules_to_save\": null,"
                   "\"target_parameters\": [\"experts.w1\"], \"init_lora_weights\": \"pissa\","
                   "\"trainable_token_indices\": [1, 2], \"layer_replication\": [[0, 2]]}") ==
                  FSDPCK_OK,
              "%s", err.message);
    const lora_numbers n = numbers_of("q_proj");
    cr_assert(n.scaling == 32 / sqrt(16));
    cr_assert(config.use_dora && config.fan_in_fan_out && !config.lora_bias && config.has_tokens);
    cr_assert_eq(config.bias, LORA_BIAS_ONLY);
    cr_assert(config.target_modules.is_set && !config.target_modules.is_regex);
    cr_assert_eq(strtab_count(&config.target_modules.texts), 2);
    cr_assert_not(config.modules_to_save.is_set);
    cr_assert_eq(strtab_count(&config.target_parameters.texts), 1);
    cr_assert_str_eq(config.initial, "pissa");
    cr_assert_str_eq(config.unmergeable, "layer_replication");
    lora_config_release(&config);
}

Test(lora_config, target_modules)
{
    bool matches;
    cr_assert(read("{\"target_modules\": [\"q_proj\", \"mlp.up\"]}") == FSDPCK_OK);
    static const struct {
        const char *path;
        bool matches;
    } names[] = {{"a.q_proj", true},
                 {"q_proj", true},
                 {"xq_proj", false},
                 {"a.mlp.up", true},
                 {"a.up", false}},
      regex[] = {
          {"a.q_proj", true}, {"a.k_proj", false}, {"b.a.q_proj", false}, {"a.q_proj\n", false}};
    for (size_t i = 0; i < COUNT(names); i++) {
        cr_assert(lora_names_match(&config.target_modules, names[i].path, strlen(names[i].path),
                                   &matches, &err) == FSDPCK_OK);
        cr_assert_eq(matches, names[i].matches, "%s", names[i].path);
    }
    lora_config_release(&config);
    cr_assert(read("{\"target_modules\": \"a[.]q_proj\"}") == FSDPCK_OK);
    for (size_t i = 0; i < COUNT(regex); i++) {
        cr_assert(lora_names_match(&config.target_modules, regex[i].path, strlen(regex[i].path),
                                   &matches, &err) == FSDPCK_OK);
        cr_assert_eq(matches, regex[i].matches, "%s", regex[i].path);
    }
    lora_config_release(&config);
}

Test(lora_config, refusals)
{
    static const struct {
        const char *text;
        fsdpck_status status;
        fsdpck_finding_id finding;
    } rows[] = {
        {"", FSDPCK_BADINPUT, FSDPCK_FINDING_LORA_CONFIG},
        {"[]", FSDPCK_BADINPUT, FSDPCK_FINDING_LORA_CONFIG},
        {"{\"r\": 0}", FSDPCK_BADINPUT, FSDPCK_FINDING_LORA_CONFIG},
        {"{\"r\": 1.5}", FSDPCK_BADINPUT, FSDPCK_FINDING_LORA_CONFIG},
        {"{\"r\": 8, \"r\": 9}", FSDPCK_BADINPUT, FSDPCK_FINDING_LORA_CONFIG},
        {"{\"lora_alpha\": 1e999}", FSDPCK_BADINPUT, FSDPCK_FINDING_LORA_CONFIG},
        {"{\"use_dora\": 1}", FSDPCK_BADINPUT, FSDPCK_FINDING_LORA_CONFIG},
        {"{\"bias\": \"some\"}", FSDPCK_BADINPUT, FSDPCK_FINDING_LORA_CONFIG},
        {"{\"target_modules\": [1]}", FSDPCK_BADINPUT, FSDPCK_FINDING_LORA_CONFIG},
        {"{\"rank_pattern\": {\"a(\": 1}}", FSDPCK_BADINPUT, FSDPCK_FINDING_LORA_CONFIG},
        {"{\"rank_pattern\": {\"a\": \"1\"}}", FSDPCK_BADINPUT, FSDPCK_FINDING_LORA_CONFIG},
        {"{\"peft_type\": \"IA3\"}", FSDPCK_UNSUPPORTED, FSDPCK_FINDING_LORA_KIND},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        cr_assert_eq(read(rows[i].text), rows[i].status, "%s", rows[i].text);
        cr_assert_eq(err.finding, rows[i].finding, "%s", rows[i].text);
        lora_config_release(&config);
    }
}
