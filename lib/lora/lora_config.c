/* lora_config.c: adapter_config.json of PEFT. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/text.h"
#include "lora/lora_internal.h"

static fsdpck_status fail_member(const char *key, const char *expected, const json_token *t,
                                 fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, LORA_CONFIG, ("'%s' of the adapter's config is invalid", key),
                     (expected, "%s", expected), (offset, t->offset_bytes),
                     (next, "give the adapter_config.json that PEFT wrote with --adapter-config"));
}

static fsdpck_status read_bool(const char *key, const json_token *t, bool *b, fsdpck_error *err)
{
    if (t->kind == JSON_NULL)
        return FSDPCK_OK;
    if (t->kind != JSON_TRUE && t->kind != JSON_FALSE)
        return fail_member(key, "true or false", t, err);
    *b = t->kind == JSON_TRUE;
    return FSDPCK_OK;
}

/* The library never sets a locale, so strtod takes a point. */
static fsdpck_status read_number(const char *key, const json_token *t, double *number,
                                 fsdpck_error *err)
{
    char text[64];
    if (t->kind != JSON_NUMBER || t->nbytes >= sizeof text)
        return fail_member(key, "a number", t, err);
    memcpy(text, t->text, t->nbytes);
    text[t->nbytes] = '\0';
    *number = strtod(text, NULL);
    return isfinite(*number) ? FSDPCK_OK : fail_member(key, "a finite number", t, err);
}

#define RANK_MAX (UINT64_C(1) << 40)

static fsdpck_status read_rank(const char *key, const json_token *t, uint64_t *r, fsdpck_error *err)
{
    if (t->kind != JSON_NUMBER || !t->is_u64 || t->u64 == 0 || t->u64 > RANK_MAX)
        return fail_member(key, "a whole number above 0", t, err);
    *r = t->u64;
    return FSDPCK_OK;
}

/* null, a text, or a list of texts. */
static fsdpck_status read_names(const char *key, json_reader *r, const json_token *first,
                                lora_names *names, fsdpck_error *err)
{
    json_token t = *first;
    uint32_t id;
    names->is_set = t.kind != JSON_NULL;
    names->is_regex = t.kind == JSON_STRING;
    names->is_all = names->is_regex && text_is(t.text, t.nbytes, "all-linear");
    if (t.kind == JSON_STRING)
        return strtab_intern(&names->texts, t.text, t.nbytes, &id, err);
    if (t.kind != JSON_ARRAY)
        return t.kind == JSON_NULL ? FSDPCK_OK : fail_member(key, "a list of names", &t, err);
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_ARRAY_END)
            return FSDPCK_OK;
        if (t.kind != JSON_STRING)
            return fail_member(key, "a list of names", &t, err);
        RETURN_IF(strtab_intern(&names->texts, t.text, t.nbytes, &id, err));
    }
}

/* {"KEY": number, ...}, in the order of the file: the first key that matches a module counts. */
static fsdpck_status read_pattern(lora_config *c, const char *key, json_reader *r,
                                  const json_token *first, vec *patterns, fsdpck_error *err)
{
    json_token t = *first;
    if (t.kind == JSON_NULL)
        return FSDPCK_OK;
    if (t.kind != JSON_OBJECT)
        return fail_member(key, "an object of names and numbers", &t, err);
    for (;;) {
        uint64_t rank = 0;
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        lora_pattern *p = vec_push(patterns, err);
        if (p == NULL)
            return FSDPCK_LIMIT;
        RETURN_IF(lora_pattern_compile(t.text, t.nbytes, false, &p->code, err));
        RETURN_IF(json_next(r, &t, err));
        if (patterns == &c->rank_pattern)
            RETURN_IF(read_rank(key, &t, &rank, err));
        RETURN_IF(read_number(key, &t, &p->value, err));
    }
}

/* null, an index, or a list of them. Negative ones are those of no layer. */
static fsdpck_status read_layers(lora_config *c, const char *key, json_reader *r,
                                 const json_token *first, fsdpck_error *err)
{
    json_token t = *first;
    if (t.kind == JSON_NULL)
        return FSDPCK_OK;
    const bool list = t.kind == JSON_ARRAY;
    for (;;) {
        if (list)
            RETURN_IF(json_next(r, &t, err));
        if (list && t.kind == JSON_ARRAY_END)
            return FSDPCK_OK;
        if (t.kind != JSON_NUMBER)
            return fail_member(key, "indices of layers", &t, err);
        const uint64_t layer = t.is_u64 ? t.u64 : UINT64_MAX;
        RETURN_IF(vec_add(&c->layers, &layer, err));
        if (!list)
            return FSDPCK_OK;
    }
}

/* null, a list of rows, or an object with such a list for each name of a module. */
static fsdpck_status read_tokens(lora_config *c, json_reader *r, const json_token *first,
                                 fsdpck_error *err)
{
    json_token t = *first;
    uint32_t id;
    c->has_tokens = t.kind != JSON_NULL;
    while (first->kind == JSON_OBJECT) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            break;
        RETURN_IF(strtab_intern(&c->token_names, t.text, t.nbytes, &id, err));
        RETURN_IF(json_next(r, &t, err));
        RETURN_IF(json_skip(r, &t, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status read_bias(lora_config *c, const json_token *t, fsdpck_error *err)
{
    static const char *const words[] = {"none", "all", "lora_only"};
    for (uint32_t i = 0; t->kind == JSON_STRING && i < 3; i++) {
        if (json_is(t, words[i])) {
            c->bias = i;
            return FSDPCK_OK;
        }
    }
    return fail_member("bias", "\"none\", \"all\" or \"lora_only\"", t, err);
}

static fsdpck_status read_type(const json_token *t, fsdpck_error *err)
{
    char shown[80];
    if (t->kind == JSON_STRING && json_is(t, "LORA"))
        return FSDPCK_OK;
    if (t->kind != JSON_STRING)
        return fail_member("peft_type", "\"LORA\"", t, err);
    return FAIL_WITH(err, UNSUPPORTED, LORA_KIND,
                     ("adapters of type '%s' are not supported",
                      escape_text(shown, sizeof shown, t->text, t->nbytes)),
                     (expected, "LORA"), (next, "use PEFT for adapters of other methods"));
}

/* Members that change the delta, or the module that gets it. */
static bool changes_merge(const char *key, const json_token *t)
{
    static const char *const keys[] = {
        "layer_replication", "use_qalora",   "velora_config", "kasa_config",
        "monteclora_config", "arrow_config", "use_bdlora",    "alora_invocation_tokens",
        "megatron_config"};
    return t->kind != JSON_NULL && t->kind != JSON_FALSE && TEXT_IS_IN(key, strlen(key), keys);
}

static fsdpck_status read_numbers(lora_config *c, const char *key, json_reader *r,
                                  const json_token *t, fsdpck_error *err)
{
    if (strcmp(key, "r") == 0 && t->kind != JSON_NULL) {
        c->has_r = true;
        return read_rank(key, t, &c->r, err);
    }
    if (strcmp(key, "lora_alpha") == 0 && t->kind != JSON_NULL) {
        c->has_alpha = true;
        return read_number(key, t, &c->alpha, err);
    }
    if (strcmp(key, "rank_pattern") == 0)
        return read_pattern(c, key, r, t, &c->rank_pattern, err);
    if (strcmp(key, "alpha_pattern") == 0)
        return read_pattern(c, key, r, t, &c->alpha_pattern, err);
    return FSDPCK_OK;
}

static fsdpck_status read_member(lora_config *c, const char *key, json_reader *r,
                                 const json_token *t, fsdpck_error *err)
{
    const struct {
        const char *key;
        bool *value;
    } flags[] = {{"use_rslora", &c->use_rslora},
                 {"use_dora", &c->use_dora},
                 {"fan_in_fan_out", &c->fan_in_fan_out},
                 {"lora_bias", &c->lora_bias},
                 {"ensure_weight_tying", &c->ties_tokens}};
    const struct {
        const char *key;
        lora_names *value;
    } names[] = {{"target_modules", &c->target_modules},
                 {"target_parameters", &c->target_parameters},
                 {"modules_to_save", &c->modules_to_save},
                 {"exclude_modules", &c->exclude_modules}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(key, flags[i].key) == 0)
            return read_bool(key, t, flags[i].value, err);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i].key) == 0)
            return read_names(key, r, t, names[i].value, err);
    if (strcmp(key, "peft_type") == 0)
        return read_type(t, err);
    if (strcmp(key, "bias") == 0)
        return read_bias(c, t, err);
    if (strcmp(key, "layers_to_transform") == 0)
        return read_layers(c, key, r, t, err);
    if (strcmp(key, "layers_pattern") == 0)
        c->has_layers_pattern = t->kind == JSON_STRING ? t->nbytes > 0 : t->kind == JSON_ARRAY;
    if (strcmp(key, "trainable_token_indices") == 0)
        return read_tokens(c, r, t, err);
    if (strcmp(key, "init_lora_weights") == 0 && t->kind == JSON_STRING)
        (void)escape_text(c->initial, sizeof c->initial, t->text, t->nbytes);
    c->has_blocks = c->has_blocks || (strcmp(key, "use_bdlora") == 0 && t->kind == JSON_OBJECT);
    if (c->unmergeable[0] == '\0' && changes_merge(key, t))
        snprintf(c->unmergeable, sizeof c->unmergeable, "%s", key);
    return read_numbers(c, key, r, t, err);
}

/* A member given twice would have one meaning here and another in Python. */
static fsdpck_status read_members(lora_config *c, json_reader *r, strtab *seen, fsdpck_error *err)
{
    json_token t;
    char key[32];
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return json_expect(r, JSON_END, &t, err);
        const size_t known = strtab_count(seen), depth = r->depth;
        uint32_t id;
        RETURN_IF(strtab_intern(seen, t.text, t.nbytes, &id, err));
        const bool is_short = t.nbytes < sizeof key && memchr(t.text, '\0', t.nbytes) == NULL;
        memcpy(key, is_short ? t.text : "", is_short ? t.nbytes : 0);
        key[is_short ? t.nbytes : 0] = '\0';
        if (id < known)
            return fail_member(key, "each member once", &t, err);
        RETURN_IF(json_next(r, &t, err));
        RETURN_IF(read_member(c, key, r, &t, err));
        /* Members that were not read to their end. */
        if (r->depth > depth)
            RETURN_IF(json_skip(r, &t, err));
    }
}

static void init(lora_config *c, budget *owner)
{
    *c = (lora_config){.owner = owner};
    c->rank_pattern = VEC_OF(lora_pattern, owner);
    c->alpha_pattern = VEC_OF(lora_pattern, owner);
    strtab_init(&c->target_modules.texts, owner);
    strtab_init(&c->target_parameters.texts, owner);
    strtab_init(&c->modules_to_save.texts, owner);
    strtab_init(&c->exclude_modules.texts, owner);
    strtab_init(&c->token_names, owner);
    c->layers = VEC_OF(uint64_t, owner);
}

fsdpck_status lora_config_read(const char *text, size_t nbytes, budget *owner, lora_config *config,
                               fsdpck_error *err)
{
    json_reader r;
    json_token t;
    strtab seen;
    init(config, owner);
    config->text = budget_alloc(owner, (uint64_t)nbytes + 1, err);
    if (config->text == NULL)
        return FSDPCK_LIMIT;
    config->nbytes = nbytes;
    memcpy(config->text, text, nbytes);
    strtab_init(&seen, owner);
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_LORA_CONFIG);
    fsdpck_status st = json_expect(&r, JSON_OBJECT, &t, err);
    if (st == FSDPCK_OK)
        st = read_members(config, &r, &seen, err);
    json_reader_release(&r);
    strtab_release(&seen);
    return st;
}

static void release_patterns(vec *patterns)
{
    for (size_t i = 0; i < patterns->count; i++)
        lora_pattern_free(VEC_AT(patterns, lora_pattern, i)->code);
    vec_release(patterns);
}

void lora_config_release(lora_config *c)
{
    release_patterns(&c->rank_pattern);
    release_patterns(&c->alpha_pattern);
    strtab_release(&c->target_modules.texts);
    strtab_release(&c->target_parameters.texts);
    strtab_release(&c->modules_to_save.texts);
    strtab_release(&c->exclude_modules.texts);
    strtab_release(&c->token_names);
    vec_release(&c->layers);
    if (c->text != NULL)
        budget_free(c->owner, c->text, (uint64_t)c->nbytes + 1);
    memset(c, 0, sizeof *c);
}

static fsdpck_status find_value(const vec *patterns, const char *key, size_t nbytes, double *number,
                                fsdpck_error *err)
{
    for (size_t i = 0; i < patterns->count; i++) {
        const lora_pattern *p = VEC_AT(patterns, const lora_pattern, i);
        bool matches;
        RETURN_IF(lora_pattern_match(p->code, key, nbytes, &matches, err));
        if (!matches)
            continue;
        *number = p->value;
        return FSDPCK_OK;
    }
    return FSDPCK_OK;
}

fsdpck_status lora_config_numbers(const lora_config *config, const char *key, size_t nbytes,
                                  lora_numbers *numbers, fsdpck_error *err)
{
    double r = (double)config->r, alpha = config->alpha;
    *numbers = (lora_numbers){0};
    RETURN_IF(find_value(&config->rank_pattern, key, nbytes, &r, err));
    RETURN_IF(find_value(&config->alpha_pattern, key, nbytes, &alpha, err));
    numbers->r = (uint64_t)r;
    numbers->alpha = alpha;
    if (r > 0)
        numbers->scaling = config->use_rslora ? alpha / sqrt(r) : alpha / r;
    return FSDPCK_OK;
}

fsdpck_status lora_names_match(const lora_names *names, const char *path, size_t nbytes,
                               bool *matches, fsdpck_error *err)
{
    *matches = false;
    if (names->is_all) {
        *matches = true;
        return FSDPCK_OK;
    }
    if (names->is_regex) {
        void *code;
        RETURN_IF(lora_pattern_compile(strtab_text(&names->texts, 0),
                                       strtab_nbytes(&names->texts, 0), true, &code, err));
        const fsdpck_status st = lora_pattern_match(code, path, nbytes, matches, err);
        lora_pattern_free(code);
        return st;
    }
    for (uint32_t i = 0; i < strtab_count(&names->texts) && !*matches; i++) {
        const size_t n = strtab_nbytes(&names->texts, i);
        *matches = n > 0 && n <= nbytes &&
                   memcmp(path + nbytes - n, strtab_text(&names->texts, i), n) == 0 &&
                   (n == nbytes || path[nbytes - n - 1] == '.');
    }
    return FSDPCK_OK;
}

bool lora_initial_changes_base(const char *initial)
{
    static const char *const changing[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++)
        if (strncasecmp(initial, changing[i], strlen(changing[i])) == 0)
            return true;
    return false;
}
