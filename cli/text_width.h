/* text_width.h: columns that a text takes on a terminal, and names that are shortened in the middle. */
#ifndef FSDPCK_CLI_TEXT_WIDTH_H
#define FSDPCK_CLI_TEXT_WIDTH_H

#include <stddef.h>

/* Least width of a shortened name. */
#define SHORTENED_WIDTH_MIN 20u

/* Approximate, in any locale. */
size_t text_width(const char *text, size_t nbytes);

/* A text that is printed in parts: those of the text itself, and dots between them. */
#define TEXT_PARTS_MAX 8u
typedef struct text_part {
    const char *text;
    size_t nbytes;
} text_part;

/* The parts of a text, shortened to `most` columns if it is wider: a quarter before the dots, three quarters after
 * them, and between dots the numbers of a layer and an expert, if they fit. `most` is at least 3. Returns their number. */
size_t text_shorten(const char *text, size_t nbytes, size_t most, text_part parts[TEXT_PARTS_MAX]);
/* Prints them on stdout. Returns the printed width. */
size_t text_print(const char *text, size_t nbytes, size_t most);

#endif
