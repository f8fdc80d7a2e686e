/* warnings.h: the warnings of a run, kept by the context (fsdpck_context_warning). They are printed on
 * stderr as they occur, with -q too, because they can change the meaning of the result. The JSON report
 * contains them as well. */
#ifndef FSDPCK_CLI_WARNINGS_H
#define FSDPCK_CLI_WARNINGS_H

#include <cjson/cJSON.h>

#include "cmd.h"

/* Prints the warnings since the last call. May be called from any thread. */
void warnings_print(cli *c);

/* Whether there are any. */
bool warnings_any(const cli *c);

/* Adds them to a list of findings. */
void warnings_add_json(const cli *c, cJSON *findings);

/* One finding; texts may be "". */
void warnings_add_finding(cJSON *findings, fsdpck_finding_id finding, const char *severity,
                          const char *message, const char *next);

#endif
