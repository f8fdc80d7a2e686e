#include "text_width.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MARK "..."

/* Of the character at text[i]; 0 inside one. U+3000 to U+DFFF take two columns, combining accents (U+0300 to U+036F)
 * none. (libsmartcols loops forever over some of these in the C locale.) */
static size_t width_at(const char *text, size_t nbytes, size_t i)
{
    const unsigned char *s = (const unsigned char *)text;
    const bool accent = s[i] == 0xCC || (s[i] == 0xCD && i + 1 < nbytes && s[i + 1] < 0xB0);
    if ((s[i] & 0xC0) == 0x80 || accent)
        return 0;
    return s[i] >= 0xE3 && s[i] <= 0xED ? 2 : 1;
}

size_t text_width(const char *text, size_t nbytes)
{
    size_t width = 0;
    for (size_t i = 0; i < nbytes; i++)
        width += width_at(text, nbytes, i);
    return width;
}

size_t text_print(const char *text, size_t nbytes, size_t most)
{
    size_t rest = text_width(text, nbytes), end = 0, begin = 0, shown = 0;
    if (rest <= most) {
        fwrite(text, 1, nbytes, stdout);
        return rest;
    }
    /* Ends of names differ more than their beginnings. */
    const size_t mark = strlen(MARK), head = (most - mark) / 4, tail = most - mark - head;
    while (end < nbytes && shown + width_at(text, nbytes, end) <= head)
        shown += width_at(text, nbytes, end++);
    while (begin < nbytes && rest > tail)
        rest -= width_at(text, nbytes, begin++);
    while (begin < nbytes && width_at(text, nbytes, begin) == 0)
        begin++;
    fwrite(text, 1, end, stdout);
    fputs(MARK, stdout);
    fwrite(text + begin, 1, nbytes - begin, stdout);
    return shown + mark + rest;
}
