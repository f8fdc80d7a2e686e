#include "given_options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/shell_word.h"

void given_path_add(text_buf *text, const char *path)
{
    const size_t nbytes = SHELL_WORD_CAPACITY(strlen(path));
    char *word = malloc(nbytes);
    if (word == NULL)
        text->failed = 1;
    else
        text_puts(text, shell_word(word, nbytes, path));
    free(word);
}

/* " --NAME=VALUE"; shell_word would take a value that begins with a dash for a path. */
static void add_value(text_buf *text, const char *name, const char *value)
{
    text_printf(text, " --%s=%s", name, value[0] == '-' ? "-" : "");
    given_path_add(text, value + (value[0] == '-'));
}

static void add_choice(text_buf *text, const opt_row *row, int index)
{
    const char *at = row->choices;
    for (; index > 0; index--)
        at += strcspn(at, "|") + 1;
    text_printf(text, " --%s=%.*s", row->name, (int)strcspn(at, "|"), at);
}

/* `unset`: the member before options are parsed. */
static void add_row(text_buf *text, const opt_row *row, const void *member, const void *unset)
{
    const int *number = member, *none = unset;
    const uint64_t *count = member;
    char *const *value = member, *const *const *list = member;
    switch (row->kind) {
    case OPT_FLAG:
        if (*number != 0)
            text_printf(text, " --%s", row->name);
        break;
    case OPT_TEXT:
        if (*value != NULL)
            add_value(text, row->name, *value);
        break;
    case OPT_LIST:
        for (char *const *at = *list; at != NULL && *at != NULL; at++)
            add_value(text, row->name, *at);
        break;
    case OPT_CHOICE:
        if (*number != *none)
            add_choice(text, row, *number);
        break;
    case OPT_SET:
        for (int i = 0; *number >> i > 0; i++)
            if (*number >> i & 1)
                add_choice(text, row, i);
        break;
    case OPT_COUNT:
    case OPT_SIZE:
        if (*count > 0)
            text_printf(text, " --%s=%" PRIu64, row->name, *count);
    }
}

void given_options_add(text_buf *text, const opt_row *rows, const command_options *given)
{
    command_options unset;
    command_options_init(&unset);
    for (const opt_row *row = rows; row->name != NULL; row++)
        add_row(text, row, (const char *)given + row->at, (const char *)&unset + row->at);
}

void given_verify_add(text_buf *text, const command_options *given, const char *more,
                      const char *src)
{
    text_puts(text, "fsdpck verify --level checksum");
    given_options_add(text, options_reading, given);
    text_puts(text, more);
    text_puts(text, " ");
    given_path_add(text, src);
}
