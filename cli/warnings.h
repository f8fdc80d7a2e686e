/* warnings.h: the warnings of a run, kept by the context (fsdpck_context_warning). They are printed on
 * stderr as they occur, with -q too, because they can change the meaning of the result. The JSON report
 * contains them as well. */
#ifndef FSDPCK_CLI_WARNINGS_H
#define FSDPCK_CLI_WARNINGS_H

#include "base/json.h"
#include "cmd.h"

/* Prints the warnings since the last call. May be called from any thread. */
void warnings_print(cli *c);

/* The number of warnings so far. */
size_t warnings_count(const cli *c);

/* Whether any is about the input. */
bool warnings_any(const cli *c);

/* Adds them to a list of findings. */
void warnings_put(const cli *c, json_writer *json);

/* Begins a finding; texts may be "". The caller may add members, and ends the object. */
void warnings_begin_finding(json_writer *w, fsdpck_finding_id finding, const char *severity,
                            const char *message, const char *next);
/* A finding without further members. */
void warnings_put_finding(json_writer *w, fsdpck_finding_id finding, const char *severity,
                          const char *message, const char *next);

#endif
