/* model_json_values.c: keys, texts, numbers and dtypes of the document. */
#include "model/model_json.h"

#include <stdio.h>
#include <string.h>

static const char *kind_words(unsigned kinds)
{
    static const struct {
        unsigned kinds;
        const char *words;
    } table[] = {
        {ACCEPT(JSON_STRING), "a string"},
        {ACCEPT(JSON_NUMBER), "a number"},
        {ACCEPT(JSON_ARRAY), "an array"},
        {ACCEPT(JSON_OBJECT), "an object"},
        {ACCEPT(JSON_NULL), "null"},
        {ACCEPT_BOOL | ACCEPT(JSON_NUMBER), "true, false or a number"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].kinds == kinds)
            return table[i].words;
    }
    return "true or false";
}

static fsdpck_status refuse_key(const json_token *key, const char *what, const key_rule *rules,
                                unsigned nrules, fsdpck_error *err)
{
    char shown[64];
    char known[256] = "";
    for (unsigned i = 0; i < nrules; i++) {
        const size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s'%s'", i > 0 ? ", " : "", rules[i].name);
    }
    return FAIL_WITH(err, BADINPUT, MODEL_KEY, ("%s has an unknown key", what),
                     (offset, key->offset_bytes), (expected, "one of %s", known),
                     (found, "'%s'", escape_text(shown, sizeof shown, key->text, key->nbytes)));
}

static fsdpck_status store(model_reader *r, const key_rule *rule, const json_token *value, void *to,
                           fsdpck_error *err)
{
    uint32_t number = 0;
    dtype d;
    switch (rule->store) {
    case STORE_NOT:
        break;
    case STORE_BOOL:
        *(bool *)to = value->kind == JSON_TRUE;
        break;
    case STORE_COUNT:
        return model_get_u32(value, 1, rule->name, to, err);
    case STORE_DIM:
        RETURN_IF(model_get_u32(value, 0, rule->name, &number, err));
        *(uint8_t *)to = (uint8_t)(number < NDIM_MAX ? number : NDIM_MAX);
        break;
    case STORE_DTYPE:
        d = dtype_from_name(value->text, value->nbytes);
        if (d == DTYPE_NONE)
            return model_refuse_value(value, rule->name,
                                      "torch's name of a dtype, such as 'float32'", err);
        *(uint8_t *)to = (uint8_t)d;
        break;
    case STORE_WORD:
        *(word *)to = (word){r->words.nbytes, value->nbytes, value->offset_bytes};
        text_append(&r->words, value->text, value->nbytes);
        text_append(&r->words, "", 1);
        break;
    }
    return FSDPCK_OK;
}

fsdpck_status model_next_key(model_reader *r, const char *what, const key_rule *rules,
                             unsigned nrules, void *object, unsigned *seen, int *key,
                             json_token *value, fsdpck_error *err)
{
    for (;;) {
        RETURN_IF(json_next(&r->json, value, err));
        *key = -1;
        if (value->kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        unsigned found = 0;
        while (found < nrules && !json_is(value, rules[found].name))
            found++;
        if (found == nrules)
            return refuse_key(value, what, rules, nrules, err);
        const key_rule *rule = &rules[found];
        if (*seen & 1u << found)
            return FAIL_WITH(err, BADINPUT, MODEL_KEY,
                             ("%s has the key '%s' twice", what, rule->name),
                             (offset, value->offset_bytes), (expected, "each key once"),
                             (found, "'%s' again", rule->name));
        *seen |= 1u << found;
        RETURN_IF(json_next(&r->json, value, err));
        if (!(rule->kinds & ACCEPT(value->kind))) {
            const bool is_bool = value->kind == JSON_TRUE || value->kind == JSON_FALSE;
            return FAIL_WITH(
                err, BADINPUT, MODEL_KEY, ("%s has a '%s' of the wrong type", what, rule->name),
                (offset, value->offset_bytes), (expected, "%s", kind_words(rule->kinds)),
                (found, "%s", kind_words(is_bool ? ACCEPT_BOOL : ACCEPT(value->kind))));
        }
        *key = (int)found;
        if (rule->store == STORE_NOT)
            return FSDPCK_OK;
        RETURN_IF(store(r, rule, value, (char *)object + rule->at, err));
    }
}

const char *model_word(const model_reader *r, const word *w)
{
    return r->words.text == NULL ? "" : r->words.text + w->at;
}

fsdpck_status model_refuse_value(const json_token *value, const char *key, const char *expected,
                                 fsdpck_error *err)
{
    char shown[64];
    return FAIL_WITH(err, BADINPUT, MODEL_KEY, ("'%s' has a value out of range", key),
                     (offset, value->offset_bytes), (expected, "%s", expected),
                     (found, "'%s'", escape_text(shown, sizeof shown, value->text, value->nbytes)));
}

fsdpck_status model_get_u32(const json_token *value, uint32_t least, const char *key,
                            uint32_t *number, fsdpck_error *err)
{
    if (!value->is_u64 || value->u64 < least || value->u64 >= MODEL_NONE)
        return model_refuse_value(
            value, key, least > 0 ? "a whole number of at least 1" : "a whole number", err);
    *number = (uint32_t)value->u64;
    return FSDPCK_OK;
}

fsdpck_status model_get_sizes(model_reader *r, uint32_t *at, uint8_t *count, fsdpck_error *err)
{
    *at = (uint32_t)r->numbers.count;
    for (unsigned n = 0;; n++) {
        json_token t;
        RETURN_IF(json_next(&r->json, &t, err));
        if (t.kind == JSON_ARRAY_END) {
            *count = (uint8_t)n;
            return FSDPCK_OK;
        }
        if (n == NDIM_MAX || !t.is_u64 || t.u64 > INT64_MAX)
            return FAIL_WITH(err, BADINPUT, MODEL_SHAPE, ("invalid sizes of a tensor"),
                             (offset, t.offset_bytes),
                             (expected, "at most %u whole numbers", NDIM_MAX),
                             (found, n == NDIM_MAX ? "more" : "something else"));
        RETURN_IF(vec_add(&r->numbers, &(uint64_t){t.u64}, err));
    }
}
