/* text.h: comparisons of names. */
#ifndef FSDPCK_BASE_TEXT_H
#define FSDPCK_BASE_TEXT_H

#include <stdbool.h>
#include <string.h>

static inline bool text_ends_with(const char *text, size_t nbytes, const char *end)
{
    const size_t n = strlen(end);
    return nbytes >= n && memcmp(text + nbytes - n, end, n) == 0;
}

/* For qsort and bsearch over `const char *`. */
static inline int text_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

#endif
