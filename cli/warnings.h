/* warnings.h: the warnings of a run, as the context keeps them (fsdpck_context_warning): on stderr as
 * they come, with -q too, for the result may not be what the user thinks; and in the JSON report, so
 * that with --json nobody need read stderr. */
#ifndef FSDPCK_CLI_WARNINGS_H
#define FSDPCK_CLI_WARNINGS_H

#include <cjson/cJSON.h>

#include "cmd.h"

/* Prints what has come since the last call. From any thread. */
void warnings_print(cli *c);

/* Whether there are any. */
bool warnings_any(const cli *c);

/* Adds them to a list of findings. */
void warnings_add_json(const cli *c, cJSON *findings);

/* One finding; texts may be "". */
void warnings_add_finding(cJSON *findings, fsdpck_finding_id finding, const char *severity,
                          const char *message, const char *next);

#endif
