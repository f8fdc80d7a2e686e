/* html_option.h: --html FILE.
 *
 *     const char *const checkpoints[] = {src, w->like, NULL};
 *     const int unusable = html_option_start(c, w->html, checkpoints, 2);
 *     if (unusable >= 0)
 *         return unusable;
 *     ... the command, as with --json
 */
#ifndef FSDPCK_CLI_HTML_OPTION_H
#define FSDPCK_CLI_HTML_OPTION_H

#include "cmd.h"

/* `checkpoints`: those that the command reads or writes, and its manifest, which must not be or contain FILE; NULL: none.
 * Checks FILE, before work that can take long, and sets c->json, so that the report goes there; under mpirun that of
 * rank 0. NULL: no page. Returns -1, or the exit code of a failure that it has reported. */
int html_option_start(cli *c, const char *path, const char *const *checkpoints, size_t count);
/* Whether the report goes to a page, so that the command prints its result on stdout in one line. */
bool html_option_wants_verdict(const cli *c);

#endif
