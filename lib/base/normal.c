#include "base/normal.h"

#include <stdint.h>
#include <utf8proc.h>

#include "base/utf8.h"

#define TEXT_NBYTES_MOST ((size_t)64 << 10)
/* Largest number of code points in one decomposition. */
#define PARTS_MOST 4u
/* Largest number of marks per letter that are sorted: real text has only a few. */
#define MARKS_MOST 32u
/* The combining class is above the code point. */
#define CLASS_SHIFT 24

bool normal_is_ascii(const char *text, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] >= 0x7F)
            return false;
    return true;
}

/* The canonical decomposition of a character, each part with its class. */
static unsigned decompose(uint32_t c, uint32_t *to)
{
    int32_t parts[PARTS_MOST];
    int unused = 0;
    const utf8proc_ssize_t n =
        utf8proc_decompose_char((int32_t)c, parts, PARTS_MOST, UTF8PROC_DECOMPOSE, &unused);
    for (utf8proc_ssize_t i = 0; i < n; i++)
        to[i] = (uint32_t)parts[i] | (uint32_t)utf8proc_get_property(parts[i])->combining_class
                                         << CLASS_SHIFT;
    return (unsigned)n;
}

/* Sorts marks by class between letters: stable. */
static void sort_marks(uint32_t *points, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        const uint32_t c = points[i], class = c >> CLASS_SHIFT;
        size_t at = i;
        if (class == 0)
            continue;
        for (; at > 0 && i - at < MARKS_MOST && points[at - 1] >> CLASS_SHIFT > class; at--)
            points[at] = points[at - 1];
        points[at] = c;
    }
}

/* Writes the collected letters and marks, and clears them. */
static void flush(uint32_t *points, size_t *count, text_buf *out)
{
    sort_marks(points, *count);
    for (size_t i = 0; i < *count; i++) {
        uint8_t bytes[4];
        const uint32_t c = points[i] & ((1u << CLASS_SHIFT) - 1);
        text_append(out, bytes, (size_t)utf8proc_encode_char((int32_t)c, bytes));
    }
    *count = 0;
}

fsdpck_status normal_text(const char *text, size_t nbytes, text_buf *out, fsdpck_error *err)
{
    const uint8_t *s = (const uint8_t *)text;
    vec points = VEC_OF(uint32_t, NULL);
    size_t count = 0;

    out->nbytes = 0;
    if (nbytes > TEXT_NBYTES_MOST) {
        text_append(out, text, nbytes);
        return text_check(out, err);
    }
    uint32_t *all = vec_push_n(&points, PARTS_MOST * nbytes + 1, err);
    if (all == NULL)
        return FSDPCK_LIMIT;
    for (size_t at = 0; at < nbytes;) {
        uint32_t c;
        const unsigned n = utf8_decode(s + at, nbytes - at, &c);
        if (n == 0) {
            flush(all, &count, out);
            text_append(out, text + at, 1);
        } else if (!utf8_hidden(c)) {
            count += decompose(c, all + count);
        }
        at += n > 0 ? n : 1;
    }
    flush(all, &count, out);
    vec_release(&points);
    return text_check(out, err);
}
