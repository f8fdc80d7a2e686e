#include "base/shell_word.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Bytes that bash never expands. */
static bool is_plain(const char *path)
{
    return path[0] != '\0' &&
           path[strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "_./=+,@%:-")] == '\0';
}

/* Bytes of the next character; 0 if a terminal does not show it. */
static unsigned shown_nbytes(const char *path)
{
    uint32_t c = 0;
    const unsigned n = utf8_decode((const uint8_t *)path, strlen(path), &c);
    return n > 0 && !utf8_hidden(c) ? n : 0;
}

static bool is_shown(const char *path)
{
    for (; *path != '\0'; path += shown_nbytes(path))
        if (shown_nbytes(path) == 0)
            return false;
    return true;
}

/* The text for the character at `path` within the quotes; returns its bytes in the path. */
static unsigned quote(char text[8], const char *path, bool has_escapes)
{
    const unsigned n = shown_nbytes(path);
    if (*path == '\'')
        snprintf(text, 8, has_escapes ? "\\'" : "'\\''");
    else if (has_escapes && *path == '\\')
        snprintf(text, 8, "\\\\");
    else if (n > 0)
        snprintf(text, 8, "%.*s", (int)n, path);
    else if (*path == '\n' || *path == '\t')
        snprintf(text, 8, "\\%c", *path == '\n' ? 'n' : 't');
    else
        snprintf(text, 8, "\\x%02X", (unsigned)(uint8_t)*path);
    return n > 0 ? n : 1;
}

static bool append(char *out, size_t capacity_bytes, const char *text)
{
    const size_t at = strlen(out), n = strlen(text);
    if (n >= capacity_bytes - at)
        return false;
    memcpy(out + at, text, n + 1);
    return true;
}

char *shell_word(char *out, size_t capacity_bytes, const char *path)
{
    const bool has_escapes = !is_shown(path), is_quoted = !is_plain(path);
    char text[8];
    out[0] = '\0';
    bool fits = append(out, capacity_bytes,
                       has_escapes ? "$'"
                       : is_quoted ? "'"
                                   : "") &&
                append(out, capacity_bytes, path[0] == '-' ? "./" : "");
    while (fits && *path != '\0') {
        path += quote(text, path, has_escapes);
        fits = append(out, capacity_bytes, text);
    }
    if (!fits || !append(out, capacity_bytes, is_quoted ? "'" : ""))
        out[0] = '\0';
    return out;
}
