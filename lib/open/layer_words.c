#include "open/layer_words.h"

#include <string.h>

#include "base/text.h"

static const layer_type types[] = {
#define LAYERS(type, word)            {type, word, false, {NULL, NULL}},
#define STACKS(type, word)            {type, word, true, {NULL, NULL}},
#define KINDS(type, word, list, more) {type, word, false, {list, more}},
#define COUNTED(prefix, number)
#include "open/layer_words.def"
#undef COUNTED
#undef KINDS
#undef STACKS
#undef LAYERS
};

static const struct counted {
    const char *prefix;
    model_number number;
} counts[] = {
#define LAYERS(type, word)
#define STACKS(type, word)
#define KINDS(type, word, list, more)
#define COUNTED(prefix, number) {prefix, number},
#include "open/layer_words.def"
#undef COUNTED
#undef KINDS
#undef STACKS
#undef LAYERS
};

const layer_type *layer_type_of(const char *model_type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].type, model_type) == 0)
            return &types[i];
    return NULL;
}

static bool has_part(const char *name, const char *word)
{
    const size_t n = strlen(word);
    for (;; name++) {
        if (strncmp(name, word, n) == 0 && (name[n] == '.' || name[n] == '\0'))
            return true;
        name = strchr(name, '.');
        if (name == NULL)
            return false;
    }
}

bool layer_type_names(const char *model_type, const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].type, model_type) == 0 && has_part(name, types[i].word))
            return true;
    return false;
}

static bool is_layer_word(const char *part, size_t length)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (text_is(part, length, types[i].word))
            return true;
    return false;
}

size_t layer_stack_length(const char *name, bool *in_module)
{
    for (const char *part = name, *end; (end = strchr(part, '.')) != NULL; part = end + 1) {
        const char *number = end + 1, *suffix = number + strspn(number, "0123456789");
        if (suffix == number || *suffix != '.')
            continue;
        *in_module = strchr(suffix + 1, '.') != NULL;
        return suffix - number <= 6 && is_layer_word(part, (size_t)(end - part))
                   ? (size_t)(number - name)
                   : 0;
    }
    return 0;
}

/* Rows of one prefix replace each other: without a number of its own, T5's decoder has as many layers as its encoder. */
uint64_t layer_stack_count(const model_config *config, const char *prefix)
{
    const char *found = NULL;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (found == NULL && text_ends_with(prefix, strlen(prefix), counts[i].prefix))
            found = counts[i].prefix;
        if (found != NULL && strcmp(found, counts[i].prefix) == 0 &&
            config->numbers[counts[i].number] > 0)
            return config->numbers[counts[i].number];
    }
    return 0;
}
