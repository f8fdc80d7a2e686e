/* python_text.h: a path as an expression of Python, for lines that are pasted into a program. */
#ifndef FSDPCK_CLI_PYTHON_TEXT_H
#define FSDPCK_CLI_PYTHON_TEXT_H

#include <stddef.h>

/* 'path' with escapes, or os.fsdecode(b'path') if it is not UTF-8. Returns `out`; "" if it does not fit. */
char *python_text(char *out, size_t capacity, const char *path);

#endif
