/* page_text.h: a manual page as plain text, where the program man is missing. */
#ifndef FSDPCK_CLI_PAGE_TEXT_H
#define FSDPCK_CLI_PAGE_TEXT_H

#include <stdbool.h>

/* Prints the page at `path` on stdout. It may have the macros that the pages of fsdpck use. False: it cannot be read. */
bool page_text_print(const char *path);

#endif
