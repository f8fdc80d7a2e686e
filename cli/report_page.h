/* report_page.h: --html FILE, the JSON envelope of a report in a web page that draws it.
 *
 *     code = report_page_start(c, w->html);
 *     if (code >= 0)
 *         return code;
 *     ... the command, as with --json
 *
 * The page (report_page.html) needs no other file. Only a page is ever replaced.
 */
#ifndef FSDPCK_CLI_REPORT_PAGE_H
#define FSDPCK_CLI_REPORT_PAGE_H

#include "cmd.h"

/* Checks FILE and sets c->json, so that the report goes there; under mpirun that of rank 0. NULL: no page.
 * Returns -1, or the exit code of a failure that it has reported. */
int report_page_start(cli *c, const char *path);

/* For report.c. The first call creates the page under a temporary name. */
void report_page_put(report_page *page, const char *json, size_t nbytes);
/* Completes the page and gives it its name. Returns false after it has reported a failure. */
bool report_page_finish(report_page *page);

#endif
