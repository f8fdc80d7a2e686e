/* html_option.h: --html FILE.
 *
 *     const int unusable = html_option_start(c, w->html);
 *     if (unusable >= 0)
 *         return unusable;
 *     ... the command, as with --json
 */
#ifndef FSDPCK_CLI_HTML_OPTION_H
#define FSDPCK_CLI_HTML_OPTION_H

#include "cmd.h"

/* Checks FILE, before work that can take long, and sets c->json, so that the report goes there; under mpirun that of
 * rank 0. NULL: no page. Returns -1, or the exit code of a failure that it has reported. */
int html_option_start(cli *c, const char *path);

#endif
