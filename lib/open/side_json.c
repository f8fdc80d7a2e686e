/* JSON files of a model or of a trainer beside the weights: whether they end, and whether they are another one of these files,
 * exchanged or copied by mistake. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "io/file.h"
#include "open/model_config.h"
#include "open/state_files.h"
#include "open/step_manifest.h"

/* After the first object; 0: it does not end. Without its numbers, which may be NaN: Python writes it. is_list: it may be a
 * list, after a byte order mark. */
static size_t json_end(const char *text, size_t nbytes, bool is_list)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t depth = 0, i = is_list && strncmp(text, mark, strlen(mark)) == 0 ? strlen(mark) : 0;
    bool in_string = false;
    while (i < nbytes && strchr(" \t\r\n", text[i]) != NULL && text[i] != '\0')
        i++;
    if (i == nbytes || (text[i] != '{' && !(is_list && text[i] == '[')))
        return 0;
    for (; i < nbytes; i++) {
        const char c = text[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']') && --depth == 0)
            return i + 1;
    }
    return 0;
}

bool json_text_has_end(const char *text, size_t nbytes)
{
    return json_end(text, nbytes, true) > 0;
}

bool trainer_state_is_json(const char *name)
{
    static const char *const names[] = {TRAINER_STATE_JSON, "adapter_config.json", STEP_MANIFEST};
    return TEXT_IS_IN(name, strlen(name), names);
}

static const char *const model_json_names[] = {"config.json",
                                               "generation_config.json",
                                               "tokenizer.json",
                                               "tokenizer_config.json",
                                               "special_tokens_map.json",
                                               "added_tokens.json",
                                               "vocab.json",
                                               "preprocessor_config.json",
                                               "processor_config.json"};

bool model_json_has_name(const char *name)
{
    return TEXT_IS_IN(name, strlen(name), model_json_names);
}

/* Members of the root object that the writers of one kind of file put into it. */
enum {
    HAS_GLOBAL_STEP = 1,
    HAS_LOG_HISTORY = 2,
    HAS_PEFT_TYPE = 4,
    HAS_MODEL = 8,
    HAS_PRE_TOKENIZER = 16,
    HAS_TOKENIZER_CLASS = 32,
    HAS_WEIGHT_MAP = 64,
    HAS_ARCHITECTURES = 128,
    HAS_MODEL_TYPE = 256,
    HAS_VERSION = 512,
    IS_UNREADABLE = 1024
};

static unsigned members_of(const char *text, size_t nbytes)
{
    static const char *const names[] = {
        "global_step",     "log_history", "peft_type",     "model",      "pre_tokenizer",
        "tokenizer_class", "weight_map",  "architectures", "model_type", "transformers_version"};
    json_reader r;
    json_token t;
    unsigned has = 0;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_NONE);
    fsdpck_status st = json_next(&r, &t, NULL);
    while (st == FSDPCK_OK && (st = json_next(&r, &t, NULL)) == FSDPCK_OK && t.kind == JSON_KEY) {
        for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
            has |= json_is(&t, names[i]) ? 1u << i : 0;
        st = json_next(&r, &t, NULL);
        if (st == FSDPCK_OK)
            st = json_skip(&r, &t, NULL);
    }
    json_reader_release(&r);
    return st == FSDPCK_OK ? has : has | IS_UNREADABLE;
}

/* own: what every writer of the file puts into it; others: what shows another file if it has nothing of its own. The config of
 * an adapter may have model_type (AdapterHub), that of a model tokenizer_class, each beside members of its own. */
static const struct side_kind {
    const char *name;
    unsigned own, others;
    const char *damage;
} side_kinds[] = {
    {TRAINER_STATE_JSON, HAS_GLOBAL_STEP, 0, "it has no global_step: it is another file"},
    {"adapter_config.json", HAS_PEFT_TYPE,
     HAS_ARCHITECTURES | HAS_TOKENIZER_CLASS | HAS_WEIGHT_MAP | HAS_VERSION | HAS_PRE_TOKENIZER |
         HAS_LOG_HISTORY,
     "it has no peft_type: it is another file"},
    {"tokenizer.json", HAS_MODEL,
     HAS_ARCHITECTURES | HAS_TOKENIZER_CLASS | HAS_WEIGHT_MAP | HAS_VERSION | HAS_PEFT_TYPE |
         HAS_LOG_HISTORY,
     "it has no model of a tokenizer: it is another file"},
    {"tokenizer_config.json", HAS_TOKENIZER_CLASS,
     HAS_ARCHITECTURES | HAS_WEIGHT_MAP | HAS_PEFT_TYPE | HAS_PRE_TOKENIZER | HAS_LOG_HISTORY,
     "it has no tokenizer_class: it is another file"},
    {"config.json", HAS_MODEL_TYPE | HAS_ARCHITECTURES,
     HAS_TOKENIZER_CLASS | HAS_PEFT_TYPE | HAS_PRE_TOKENIZER | HAS_LOG_HISTORY,
     "it has no model_type: it is another file"},
    {"generation_config.json", 0,
     HAS_TOKENIZER_CLASS | HAS_PEFT_TYPE | HAS_PRE_TOKENIZER | HAS_LOG_HISTORY,
     "it has members of another file"},
};

static const struct side_kind *kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof side_kinds / sizeof *side_kinds; i++)
        if (strcmp(name, side_kinds[i].name) == 0)
            return &side_kinds[i];
    return NULL;
}

/* transformers writes the model's type into each config.json, and sizes of layers into no other file. */
static const char *config_damage(bool is_config, unsigned has, const char *text, size_t nbytes)
{
    model_config config;
    const char *damage = NULL;
    if (has & HAS_WEIGHT_MAP)
        return "it is an index of weights";
    if (model_config_read_text(text, nbytes, &config, NULL) != FSDPCK_OK) {
        model_config_release(&config);
        return NULL;
    }
    const bool has_sizes = config.number_keys[MODEL_HIDDEN_SIZE] != NULL ||
                           config.number_keys[MODEL_HIDDEN_LAYERS] != NULL;
    if (is_config && (has & HAS_VERSION) && !(has & HAS_MODEL_TYPE) && !has_sizes)
        damage = "it has no model_type: it is another file, such as generation_config.json";
    else if (!is_config && (has & HAS_MODEL_TYPE) && has_sizes)
        damage = "it has the sizes of a model: it is a config.json";
    model_config_release(&config);
    return damage;
}

/* Files that were exchanged. */
static const char *exchange_damage(const char *name, const char *text, size_t nbytes)
{
    const struct side_kind *kind = kind_of(name);
    if (kind == NULL)
        return NULL;
    const unsigned has = members_of(text, nbytes);
    const bool is_config = strcmp(name, "config.json") == 0;
    if (has & IS_UNREADABLE)
        return NULL;
    if ((has & kind->own) == 0 && ((has & kind->others) != 0 || kind->others == 0))
        return kind->damage;
    return is_config || strcmp(name, "generation_config.json") == 0
               ? config_damage(is_config, has, text, nbytes)
               : NULL;
}

/* Python's json refuses text after the end, as of a longer file that was there before. Settings are an object. */
static const char *json_damage(const char *name, const char *text, size_t nbytes)
{
    size_t end = json_end(text, nbytes, model_json_has_name(name));
    if (nbytes == 0)
        return "file is empty: the save did not end";
    if (end == 0)
        return "JSON has no end: the file was truncated, or the save did not end";
    while (end < nbytes && memchr(" \t\r\n", text[end], 4) != NULL)
        end++;
    if (end < nbytes)
        return "JSON has text after its end: the file was longer, or was written twice";
    return text_ends_with(name, strlen(name), "config.json") && text[strspn(text, " \t\r\n")] == '['
               ? "JSON is a list, not an object"
               : exchange_damage(name, text, nbytes);
}

static bool are_same(const folder *dir, const char *name, const char *other)
{
    file a = FILE_CLOSED, b = FILE_CLOSED;
    const bool same = file_open_read(&a, dir, name, 0, NULL) == FSDPCK_OK &&
                      file_open_read(&b, dir, other, 0, NULL) == FSDPCK_OK &&
                      file_has_same_bytes(&a, &b);
    file_abandon(&a);
    file_abandon(&b);
    return same;
}

/* The name of another file with the same bytes; NULL: none. Empty lists of tokens are equal, and the
 * configs of an image processor may be. */
static const char *copied_from(const probe_input *in, const char *name, const char *text,
                               size_t nbytes)
{
    enum { NBYTES_MIN = 64 };
    const struct side_kind *kind = kind_of(name);
    const char *other = NULL;
    if (nbytes < NBYTES_MIN || strstr(name, "processor_config.json") != NULL)
        return NULL;
    for (size_t i = 0; other == NULL && i < sizeof model_json_names / sizeof *model_json_names; i++)
        if (strcmp(name, model_json_names[i]) != 0 && probe_has_entry(in, model_json_names[i]) &&
            are_same(&in->dir, name, model_json_names[i]))
            other = model_json_names[i];
    return other == NULL || kind == NULL || (members_of(text, nbytes) & kind->own) == 0 ? other
                                                                                        : NULL;
}

fsdpck_status trainer_state_read_json(const probe_input *in, const char *name, char **text,
                                      size_t *nbytes, fsdpck_error *err)
{
    RETURN_IF(file_read_whole(&in->dir, name, TRAINER_STATE_JSON_NBYTES, text, nbytes, err));
    const char *why = json_damage(name, *text, *nbytes);
    const char *other = why == NULL ? copied_from(in, name, *text, *nbytes) : NULL;
    if (why == NULL && other == NULL)
        return FSDPCK_OK;
    free(*text);
    *text = NULL;
    return other != NULL
               ? FAIL(err, BADINPUT, NONE, "it has the bytes of '%s': one is a copy", other)
               : FAIL(err, BADINPUT, NONE, "%s", why);
}
