/* complete.h: words with which a shell may complete a command line. The scripts in cli/completions call
 *
 *     fsdpck __complete WORD...        # the words after "fsdpck"; the last one is to be completed
 *
 * and read a line for each candidate: the whole word, a tab, and a description. A last line ":files"
 * says that names of files are candidates too.
 */
#ifndef FSDPCK_CLI_COMPLETE_H
#define FSDPCK_CLI_COMPLETE_H

#include "opt.h"

/* Whether a word is the name of the hidden command. */
bool complete_is_command(const char *word);
/* argv[0] is that name; `asked` is the command of the word after it, or NULL; its operands may be names of
 * commands and findings (is_help). Returns the exit code. */
int complete_run(cli *c, const command *asked, bool is_help, int argc, const char **argv);

#endif
