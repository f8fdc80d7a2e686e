/* next_command.h: commands that reports give as the next step. */
#ifndef FSDPCK_CLI_NEXT_COMMAND_H
#define FSDPCK_CLI_NEXT_COMMAND_H

#include "cmd.h"
#include "command_options.h"
#include "report.h"

/* A name that no file in the current folder has, for the output of a command. Returns name. */
const char *next_command_name(char *name, size_t capacity, const char *stem, const char *suffix);

/* Each adds one line to the text. */
/* The command line of a plan, without --dry-run, --json and --html. */
void next_command_run(text_buf *text, const cli *c);
/* reshard of what layout has shown. */
void next_command_reshard(text_buf *text, const command_options *given, const char *src);
/* The checksums of a source. */
void next_command_verify(text_buf *text, const command_options *given, const char *src);
/* consolidate of the model part alone. */
void next_command_model(text_buf *text, const command_options *given, const char *src);

/* Puts it into an open list, and frees it. */
void next_command_put(json_writer *w, text_buf *text);

#endif
