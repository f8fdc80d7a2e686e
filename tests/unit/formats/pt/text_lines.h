/* text_lines.h: lines of digests. */
#ifndef FSDPCK_TESTS_UNIT_FORMATS_PT_TEXT_LINES_H
#define FSDPCK_TESTS_UNIT_FORMATS_PT_TEXT_LINES_H

#include <stdbool.h>
#include <string.h>

static inline bool line_is_in(const char *text, const char *line)
{
    const size_t n = strlen(line);
    for (const char *at = strstr(text, line); at != NULL; at = strstr(at + 1, line))
        if ((at == text || at[-1] == '\n') && at[n] == '\n')
            return true;
    return false;
}

static inline size_t count_lines(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

#endif
