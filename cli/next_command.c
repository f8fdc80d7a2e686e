#include "next_command.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "given_options.h"

const char *next_command_name(char *name, size_t capacity, const char *stem, const char *suffix)
{
    snprintf(name, capacity, "%s%s", stem, suffix);
    for (unsigned i = 2; access(name, F_OK) == 0 && i < 100; i++)
        snprintf(name, capacity, "%s-%u%s", stem, i, suffix);
    return name;
}

/* As shell_word, which would take an option for a path. */
static void add_word(text_buf *text, const char *word)
{
    const size_t dashes = strspn(word, "-");
    text_printf(text, " %.*s", (int)dashes, word);
    if (word[dashes] != '\0')
        given_path_add(text, word + dashes);
}

/* The number of words of the option that concerns the report alone; 0: another word. */
static size_t report_words(const char *word)
{
    static const struct {
        const char *name;
        size_t words;
    } options[] = {{"--dry-run", 1}, {"--json", 1}, {"--html", 2}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const size_t n = strlen(options[i].name);
        if (strncmp(word, options[i].name, n) == 0 && (word[n] == '\0' || word[n] == '='))
            return word[n] == '=' ? 1 : options[i].words;
    }
    return 0;
}

void next_command_run(text_buf *text, const cli *c)
{
    bool ended = false; /* by "--" */
    text_puts(text, "fsdpck");
    for (const char *const *word = c->page->words; *word != NULL; word++) {
        size_t omitted = ended ? 0 : report_words(*word);
        ended = ended || strcmp(*word, "--") == 0;
        if (omitted == 0)
            add_word(text, *word);
        while (omitted > 1 && word[1] != NULL) {
            word++;
            omitted--;
        }
    }
}

void next_command_reshard(text_buf *text, const command_options *given, const char *src)
{
    char name[40];
    text_puts(text, "fsdpck reshard");
    given_options_add(text, options_sharding, given);
    given_options_add(text, options_part_output, given);
    given_options_add(text, options_selecting, given);
    given_options_add(text, options_reading, given);
    given_options_add(text, options_keying, given);
    if (given->format != NULL)
        text_printf(text, " --format=%s", given->format);
    text_puts(text, " ");
    given_path_add(text, src);
    text_printf(text, " %s", next_command_name(name, sizeof name, "resharded", ""));
}

void next_command_verify(text_buf *text, const command_options *given, const char *src)
{
    text_puts(text, "fsdpck verify --level checksum");
    given_options_add(text, options_reading, given);
    text_puts(text, " ");
    given_path_add(text, src);
}

void next_command_model(text_buf *text, const command_options *given, const char *src)
{
    char name[40];
    text_puts(text, "fsdpck consolidate --part model");
    given_options_add(text, options_reading, given);
    text_puts(text, " ");
    given_path_add(text, src);
    text_printf(text, " %s", next_command_name(name, sizeof name, "model", ".safetensors"));
}

void next_command_put(json_writer *w, text_buf *text)
{
    json_put_string(w, text->text, text->nbytes);
    w->out->failed |= text->failed;
    text_release(text);
}
