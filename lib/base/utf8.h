/* utf8.h: one decoder for all checks of external text. */
#ifndef FSDPCK_BASE_UTF8_H
#define FSDPCK_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length (1 to 4) of the well-formed sequence at s[0..nbytes) and its code point; 0 if it is
 * truncated, overlong, a surrogate, or above U+10FFFF. */
static inline unsigned utf8_decode(const uint8_t *s, size_t nbytes, uint32_t *code_point)
{
    if (nbytes == 0)
        return 0;
    const uint32_t lead = s[0];
    if (lead < 0x80) {
        *code_point = lead;
        return 1;
    }
    const unsigned n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || nbytes < n)
        return 0;
    uint32_t c = lead & (0x7Fu >> n);
    for (unsigned i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        c = (c << 6) | (s[i] & 0x3Fu);
    }
    if ((n == 3 && (c < 0x800 || (c >= 0xD800 && c <= 0xDFFF))) ||
        (n == 4 && (c < 0x10000 || c > 0x10FFFF)))
        return 0;
    *code_point = c;
    return n;
}

/* Whether a code point could control a terminal or be invisible: C0 and C1 controls, line and
 * paragraph separators, bidirectional controls, zero-width and other invisible format characters.
 */
static inline bool utf8_hidden(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x061C || (c >= 0x200B && c <= 0x200F) ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
           (c >= 0xFFF9 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE007F);
}

/* Whether all of it is well-formed. */
static inline bool utf8_is_text(const char *text, size_t nbytes)
{
    for (size_t at = 0; at < nbytes;) {
        uint32_t c;
        const unsigned n = utf8_decode((const uint8_t *)text + at, nbytes - at, &c);
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

#endif
