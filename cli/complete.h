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

/* The hidden command, and whether a word is its name. */
int complete_run(cli *c, int argc, const char **argv);
bool complete_is_command(const char *word);

/* For opt_parse, if c->completing is set: prints the candidates for its last word. */
void complete_print(const cli *c, const opt_spec *spec);

#endif
