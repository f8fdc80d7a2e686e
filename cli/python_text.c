#include "python_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* The text for the character at `path`; returns its bytes. */
static unsigned quote(char text[8], const char *path, bool is_text)
{
    const uint8_t byte = (uint8_t)*path;
    uint32_t c = 0;
    const unsigned n = utf8_decode((const uint8_t *)path, strlen(path), &c);
    if (byte == '\'' || byte == '\\')
        snprintf(text, 8, "\\%c", *path);
    else if (byte == '\n')
        snprintf(text, 8, "\\n");
    else if (byte >= 0x20 && byte < 0x7F)
        snprintf(text, 8, "%c", *path);
    else if (!is_text || c < 0x20 || c == 0x7F)
        snprintf(text, 8, "\\x%02x", byte);
    else if (!utf8_hidden(c))
        snprintf(text, 8, "%.*s", (int)n, path);
    else
        return 0;
    return is_text ? n : 1;
}

/* Hidden characters need up to ten bytes, the others fewer than eight. */
static size_t put(char *out, size_t capacity, const char *path, bool is_text)
{
    size_t at = 0;
    while (*path != '\0') {
        char text[12];
        unsigned n = quote(text, path, is_text);
        if (n == 0) {
            uint32_t c = 0;
            n = utf8_decode((const uint8_t *)path, strlen(path), &c);
            snprintf(text, sizeof text, "\\U%08x", (unsigned)c);
        }
        const size_t nbytes = strlen(text);
        if (nbytes >= capacity - at)
            return capacity;
        memcpy(out + at, text, nbytes);
        at += nbytes;
        path += n;
    }
    return at;
}

char *python_text(char *out, size_t capacity, const char *path)
{
    const bool is_text = utf8_is_text(path, strlen(path));
    const char *const begin = is_text ? "'" : "os.fsdecode(b'", *const end = is_text ? "'" : "')";
    const size_t before = strlen(begin), after = strlen(end) + 1;
    out[0] = '\0';
    if (capacity < before + after)
        return out;
    const size_t n = put(out + before, capacity - before - after + 1, path, is_text);
    if (n > capacity - before - after)
        return out;
    memcpy(out, begin, before);
    memcpy(out + before + n, end, after);
    return out;
}
