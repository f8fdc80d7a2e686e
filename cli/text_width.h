/* text_width.h: columns that a text takes on a terminal, and names that are shortened in the middle. */
#ifndef FSDPCK_CLI_TEXT_WIDTH_H
#define FSDPCK_CLI_TEXT_WIDTH_H

#include <stddef.h>

/* Least width of a shortened name. */
#define SHORTENED_WIDTH_MIN 20u

/* Approximate, in any locale. */
size_t text_width(const char *text, size_t nbytes);

/* Prints a text on stdout, shortened to `most` columns if it is wider: a quarter before the dots, three quarters after
 * them, and between dots the numbers of a layer and an expert, if they fit. `most` is at least 3. Returns the printed
 * width. */
size_t text_print(const char *text, size_t nbytes, size_t most);

#endif
