/* pager.h: a report that is read through a pager, as git has it. */
#ifndef FSDPCK_CLI_PAGER_H
#define FSDPCK_CLI_PAGER_H

#include "cmd.h"

/* Starts a pager, which reads all further output of stdout: the command in FSDPCK_PAGER or PAGER, else less. None
 * starts if stdout is not a terminal, with --json or --no-pager, for several ranks, or if the command is empty or
 * "cat". Call it before the report, after everything that prints on stderr. */
void pager_start(cli *c);

/* Ends the output, and waits until the user leaves the pager. False if there is none. */
bool pager_finish(cli *c);

#endif
