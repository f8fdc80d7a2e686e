/* help_options.h: the options of all commands by name, for `fsdpck help OPTION`. */
#ifndef FSDPCK_CLI_HELP_OPTIONS_H
#define FSDPCK_CLI_HELP_OPTIONS_H

#include "opt.h"

#define OPTION_USES_MAX 16u

/* Options of one name in several commands. */
typedef struct option_uses {
    struct option_use {
        const opt_row *row;
        const command *of;
    } list[OPTION_USES_MAX];
    size_t count;
} option_uses;

/* all: the commands, up to one without a name. `word`: a name, with or without dashes and a value. False if no command has such an option. */
bool help_options_find(cli *c, const command *all, const char *word, option_uses *uses);
/* The most similar name of an option, or NULL. */
const char *help_options_similar(cli *c, const command *all, const char *word);
/* What each of them does, and in which commands. */
void help_options_print(const option_uses *uses);
int help_options_print_json(const cli *c, const option_uses *uses);

#endif
