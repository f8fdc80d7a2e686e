/* given_options.h: options of a command line, for a command that is printed as a next step. */
#ifndef FSDPCK_CLI_GIVEN_OPTIONS_H
#define FSDPCK_CLI_GIVEN_OPTIONS_H

#include "base/json.h"
#include "command_options.h"

/* Adds the options of `rows` that differ from their defaults, each after a space and quoted for a shell. */
void given_options_add(text_buf *text, const opt_row *rows, const command_options *given);
/* Adds a path as a word for a shell. */
void given_path_add(text_buf *text, const char *path);

/* Adds "fsdpck verify --level checksum SRC", with the options that read SRC, and `more` after them. */
void given_verify_add(text_buf *text, const command_options *given, const char *more,
                      const char *src);

#endif
