/* report_page.h: the JSON envelope of a report in a web page that draws it, see html_option.h.
 *
 * The page (page/page.html) needs no other file. Only a page is ever replaced.
 */
#ifndef FSDPCK_CLI_REPORT_PAGE_H
#define FSDPCK_CLI_REPORT_PAGE_H

#include "cmd.h"

/* Whether nothing but a page is at this path. */
bool report_page_is_free(const char *path);

/* For report.c. The first call creates the page under a temporary name. */
void report_page_put(report_page *page, const char *json, size_t nbytes);
/* Keeps a note that was printed on stderr, if there is a page. From any thread. */
void report_page_note(report_page *page, const char *text);
/* Completes the page and gives it its name; without the whole report (memory ran out), removes it. Returns false after
 * it has reported a failure. */
bool report_page_finish(report_page *page, bool is_whole);

#endif
