/* average_adapters.c: folders of adapters: whether their configs permit an average, and whether a checkpoint is one. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "open/average_checks.h"

/* What of a member must be equal. Of some methods only whether they are used: names and shapes show their numbers, or these
 * matter in training alone. */
typedef enum comparison { BY_VALUE, BY_NAMES, BY_USE, BY_BASE } comparison;

/* Members that give the tensors of an adapter their meaning. Names and shapes show the others. */
static const struct {
    const char *name;
    comparison by;
    bool is_method; /* whose adapters consolidate does not merge */
} members[] = {
    {"peft_type", BY_VALUE, true},
    {"r", BY_VALUE, false},
    {"lora_alpha", BY_VALUE, false},
    {"rank_pattern", BY_VALUE, false},
    {"alpha_pattern", BY_VALUE, false},
    {"use_rslora", BY_VALUE, false},
    {"use_dora", BY_VALUE, false},
    {"fan_in_fan_out", BY_VALUE, false},
    {"bias", BY_VALUE, false},
    {"lora_bias", BY_VALUE, false},
    {"trainable_token_indices", BY_VALUE, false},
    {"target_parameters", BY_NAMES,
     false}, /* nested wrappers have the same names for other parameters */
    {"layer_replication", BY_VALUE, true},
    {"alora_invocation_tokens", BY_VALUE, true},
    {"use_qalora", BY_VALUE, true},
    {"use_bdlora", BY_USE, true},
    {"kasa_config", BY_USE, true},
    {"monteclora_config", BY_USE, true},
    {"arrow_config", BY_USE, true},
    {"init_lora_weights", BY_BASE, false},
};

#define MEMBER_COUNT (sizeof members / sizeof *members)

typedef struct config_values {
    text_buf text[MEMBER_COUNT]; /* as JSON; empty: absent, null, false, or without elements */
} config_values;

static void values_release(config_values *v)
{
    for (size_t i = 0; i < MEMBER_COUNT; i++)
        text_release(&v->text[i]);
}

static fsdpck_status read_value(json_reader *r, text_buf *text, fsdpck_error *err)
{
    json_token t;
    json_writer w;
    const unsigned outside = r->depth;
    text->nbytes = 0;
    json_writer_init(&w, text, 0);
    do {
        RETURN_IF(json_next(r, &t, err));
        json_put_token(&w, &t);
    } while (r->depth > outside);
    RETURN_IF(text_check(text, err));
    if (t.kind == JSON_NULL || t.kind == JSON_FALSE || strcmp(text->text, "{}") == 0 ||
        strcmp(text->text, "[]") == 0)
        text->nbytes = 0;
    return FSDPCK_OK;
}

static fsdpck_status read_values(json_reader *r, config_values *v, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        size_t i = 0;
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return json_expect(r, JSON_END, &t, err);
        while (i < MEMBER_COUNT && !json_is(&t, members[i].name))
            i++;
        if (i < MEMBER_COUNT) {
            RETURN_IF(read_value(r, &v->text[i], err));
            continue;
        }
        RETURN_IF(json_next(r, &t, err));
        RETURN_IF(json_skip(r, &t, err));
    }
}

/* Of lora_train_meta.json, which has no more than these. */
static fsdpck_status take_facts(const lora_facts *facts, config_values *v, fsdpck_error *err)
{
    for (size_t i = 0; i < MEMBER_COUNT; i++) {
        if (strcmp(members[i].name, "r") == 0 && facts->r > 0)
            text_printf(&v->text[i], "%" PRIu64, facts->r);
        if (strcmp(members[i].name, "lora_alpha") == 0 && facts->has_alpha)
            text_printf(&v->text[i], "%.17g", facts->alpha);
        RETURN_IF(text_check(&v->text[i], err));
    }
    return FSDPCK_OK;
}

/* *found: whether the checkpoint has a config. */
static fsdpck_status values_of(const fsdpck_checkpoint *c, config_values *v, bool *found,
                               fsdpck_error *err)
{
    adapter_source from;
    json_reader r;
    *found = false;
    fsdpck_status st = adapter_source_find(c, NULL, false, NULL, &from, err);
    if (st == FSDPCK_OK && from.text != NULL) {
        *found = true;
        json_reader_init(&r, from.text, from.nbytes, FSDPCK_FINDING_LORA_CONFIG);
        st = read_values(&r, v, err);
        json_reader_release(&r);
        if (st != FSDPCK_OK)
            error_path(err, from.path);
    } else if (st == FSDPCK_OK && (from.facts.r > 0 || from.facts.has_alpha)) {
        *found = true;
        st = take_facts(&from.facts, v, err);
    }
    adapter_source_release(&from);
    return st;
}

static const char *shown(const text_buf *text)
{
    return text->nbytes == 0 ? "absent, null or false" : text->text;
}

static bool same_text(const text_buf *a, const text_buf *b)
{
    return text_equal(a->text, a->nbytes, b->text, b->nbytes);
}

static bool same_value(const text_buf *a, const text_buf *b)
{
    char *end_a, *end_b;
    if (same_text(a, b))
        return true;
    if (a->nbytes == 0 || b->nbytes == 0)
        return false;
    const double x = strtod(a->text, &end_a), y = strtod(b->text, &end_b);
    return *end_a == '\0' && *end_b == '\0' && x == y;
}

/* The values that an adapter starts from do not matter, unless its base model is another one then. */
static bool changes_base(const text_buf *initial)
{
    return initial->nbytes > 0 && initial->text[0] == '"' &&
           lora_initial_changes_base(initial->text + 1);
}

/* Whether the strings of the JSON list are those of `names`; with add they are added to it. */
static bool see_names(const text_buf *list, bool add, strtab *names)
{
    json_reader r;
    json_token t;
    bool are = true;
    json_reader_init(&r, list->text, list->nbytes, FSDPCK_FINDING_NONE);
    while (are && json_next(&r, &t, NULL) == FSDPCK_OK && t.kind != JSON_END) {
        uint32_t id;
        if (t.kind == JSON_STRING)
            are = add ? strtab_intern(names, t.text, t.nbytes, &id, NULL) == FSDPCK_OK
                      : strtab_find(names, t.text, t.nbytes) != STRTAB_NONE;
    }
    json_reader_release(&r);
    return are;
}

/* PEFT sorts them. */
static bool same_names(const text_buf *a, const text_buf *b)
{
    strtab of_a, of_b;
    strtab_init(&of_a, NULL);
    strtab_init(&of_b, NULL);
    const bool same = a->nbytes > 0 && b->nbytes > 0 && see_names(a, true, &of_a) &&
                      see_names(b, true, &of_b) && see_names(a, false, &of_b) &&
                      see_names(b, false, &of_a);
    strtab_release(&of_a);
    strtab_release(&of_b);
    return same || same_text(a, b);
}

static bool is_same(size_t member, const text_buf *a, const text_buf *b)
{
    switch (members[member].by) {
    case BY_USE:
        return (a->nbytes > 0) == (b->nbytes > 0);
    case BY_NAMES:
        return same_names(a, b);
    case BY_BASE:
        return same_value(a, b) || (!changes_base(a) && !changes_base(b));
    default:
        return same_value(a, b);
    }
}

static const char *advice_of(bool is_base, bool is_method)
{
    return is_base     ? "convert the adapter that changed its base model with "
                         "path_initial_model_for_weight_conversion of save_pretrained"
           : is_method ? "average adapters of one method with the same settings"
                       : "merge each adapter into the base model with consolidate "
                         "--merge-adapter, and average the results";
}

static fsdpck_status compare(const fsdpck_checkpoint *one, const config_values *a,
                             const fsdpck_checkpoint *other, const config_values *b,
                             fsdpck_error *err)
{
    text_buf names = {0}, expected = {0}, found = {0};
    bool is_base = false, is_method = false;
    for (size_t i = 0; i < MEMBER_COUNT; i++) {
        if (is_same(i, &a->text[i], &b->text[i]))
            continue;
        is_base = members[i].by == BY_BASE;
        is_method = is_method || members[i].is_method;
        const char *comma = names.nbytes == 0 ? "" : ", ";
        text_printf(&names, "%s'%s'", comma, members[i].name);
        text_printf(&expected, "%s%s: %s", comma, members[i].name, shown(&a->text[i]));
        text_printf(&found, "%s%s: %s", comma, members[i].name, shown(&b->text[i]));
    }
    fsdpck_status st = FSDPCK_OK;
    if (names.nbytes > 0)
        st = FAIL_WITH(
            err, BADINPUT, LORA_CONFIG,
            ("the adapter's config differs from that of '%s' in %s", one->path, names.text),
            (path, other->path), (expected, "%s", expected.text), (found, "%s", found.text),
            (next, "%s", advice_of(is_base, is_method)));
    text_release(&names);
    text_release(&expected);
    text_release(&found);
    return st;
}

static fsdpck_status fail_without(const fsdpck_checkpoint *with, const fsdpck_checkpoint *without,
                                  fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, LORA_CONFIG,
                     ("the adapter has no config, and that of '%s' has one", with->path),
                     (path, without->path), (expected, "adapter_config.json beside the weights"),
                     (next, "copy its adapter_config.json from where the adapter was saved"));
}

fsdpck_status average_check_adapters(fsdpck_checkpoint *const *inputs, size_t count, size_t shape,
                                     fsdpck_error *err)
{
    config_values first = {0};
    bool has_first;
    if (adapters_count_tensors(&inputs[shape]->cat) == 0)
        return FSDPCK_OK;
    fsdpck_status st = values_of(inputs[shape], &first, &has_first, err);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        config_values v = {0};
        bool has_config;
        st = values_of(inputs[i], &v, &has_config, err);
        if (st == FSDPCK_OK && has_config != has_first)
            st = has_first ? fail_without(inputs[shape], inputs[i], err)
                           : fail_without(inputs[i], inputs[shape], err);
        else if (st == FSDPCK_OK && has_config)
            st = compare(inputs[shape], &first, inputs[i], &v, err);
        values_release(&v);
    }
    values_release(&first);
    return st;
}

/* base_model_name_or_path; empty: absent, null, or "". */
static fsdpck_status read_base_model(const adapter_source *from, text_buf *text, fsdpck_error *err)
{
    json_reader r;
    json_token t;
    json_reader_init(&r, from->text, from->nbytes, FSDPCK_FINDING_LORA_CONFIG);
    fsdpck_status st = json_expect(&r, JSON_OBJECT, &t, err);
    while (st == FSDPCK_OK && (st = json_next(&r, &t, err)) == FSDPCK_OK &&
           t.kind != JSON_OBJECT_END) {
        const bool is_base = json_is(&t, "base_model_name_or_path");
        st = json_next(&r, &t, err);
        if (st == FSDPCK_OK && is_base && t.kind == JSON_STRING)
            text_append(text, t.text, t.nbytes);
        if (st == FSDPCK_OK)
            st = json_skip(&r, &t, err);
    }
    json_reader_release(&r);
    return st == FSDPCK_OK ? text_check(text, err) : st;
}

/* Of a checkpoint without a readable config it is empty. */
static void base_model_of(const fsdpck_checkpoint *c, text_buf *text)
{
    adapter_source from;
    text->nbytes = 0;
    if (adapter_source_find(c, NULL, false, NULL, &from, NULL) == FSDPCK_OK && from.text != NULL &&
        read_base_model(&from, text, NULL) != FSDPCK_OK)
        text->nbytes = 0;
    adapter_source_release(&from);
}

void average_warn_base(fsdpck_checkpoint *const *inputs, size_t count, size_t shape)
{
    text_buf first = {0}, other = {0};
    char one[200], two[200];
    bool same = true;
    base_model_of(inputs[shape], &first);
    for (size_t i = 0; first.nbytes > 0 && same && i < count; i++) {
        base_model_of(inputs[i], &other);
        same = other.nbytes == 0 ||
               (other.nbytes == first.nbytes && memcmp(other.text, first.text, first.nbytes) == 0);
        if (!same)
            log_warn(&inputs[shape]->ctx->log, FSDPCK_FINDING_AVERAGE_BASE, "",
                     "base_model_name_or_path of '%s' is '%s', and that of '%s' is '%s'",
                     inputs[i]->path, escape_text(two, sizeof two, other.text, other.nbytes),
                     inputs[shape]->path, escape_text(one, sizeof one, first.text, first.nbytes));
    }
    text_release(&first);
    text_release(&other);
}

bool checkpoint_is_adapter_folder(const fsdpck_checkpoint *c)
{
    static const char *const weights[] = {"adapter_model.safetensors", "adapter_model.bin"};
    const probe_input *in = &c->probe;
    path_kind kind;
    bool has_weights = false;
    for (size_t i = 0; i < 2; i++)
        has_weights = has_weights || (in->is_folder ? probe_has_entry(in, weights[i])
                                                    : strcmp(in->name, weights[i]) == 0);
    return has_weights && c->merger == NULL && c->mapper == NULL && adapters_are_likely(&c->cat) &&
           path_probe(&in->dir, "adapter_config.json", &kind, NULL, NULL) == FSDPCK_OK &&
           kind == PATH_FILE;
}
