/* shell_word.h: a text as one word of a command line for bash, to be pasted from a terminal. */
#ifndef FSDPCK_BASE_SHELL_WORD_H
#define FSDPCK_BASE_SHELL_WORD_H

#include <stddef.h>

/* Bytes for any text: each byte may become \xNN, with "./" before and $'' around it. */
#define SHELL_WORD_CAPACITY(nbytes) (4 * (nbytes) + 8)

/* Writes the path to `out` as it is, in '...', or in $'...' if it contains bytes that a terminal does not show. A path
 * that begins with '-' gets "./" before it, so that it is no option. Returns `out`; "" if the word does not fit, as a part
 * of it would name another file. */
char *shell_word(char *out, size_t capacity_bytes, const char *path);

#endif
