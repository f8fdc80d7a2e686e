#include "base/normal.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/utf8.h"

#define TEXT_NBYTES_MOST ((size_t)64 << 10)
/* Largest number of code points in one decomposition. */
#define PARTS_MOST 4u
/* Largest number of marks per letter that are sorted: real text has only a few. */
#define MARKS_MOST 32u
/* The combining class is above the code point. */
#define CLASS_SHIFT 24

typedef struct parts {
    uint32_t whole, first, second;
} parts;

typedef struct order {
    uint32_t first, last;
    uint8_t class;
} order;

static const parts decompositions[] = {
#define PARTS(whole, first, second) {whole, first, second},
#include "base/normal.def"
#undef PARTS
};

static const order classes[] = {
#define ORDER(first, last, class) {first, last, class},
#include "base/normal.def"
#undef ORDER
};

bool normal_is_ascii(const char *text, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] >= 0x7F)
            return false;
    return true;
}

static int compare_parts(const void *key, const void *item)
{
    const uint32_t c = *(const uint32_t *)key, whole = ((const parts *)item)->whole;
    return c < whole ? -1 : c > whole;
}

static int compare_order(const void *key, const void *item)
{
    const uint32_t c = *(const uint32_t *)key;
    const order *o = item;
    return c < o->first ? -1 : c > o->last;
}

static uint8_t class_of(uint32_t c)
{
    if (c < 0x300)
        return 0;
    const order *o =
        bsearch(&c, classes, sizeof classes / sizeof *classes, sizeof *classes, compare_order);
    return o != NULL ? o->class : 0;
}

/* Syllables of Hangul follow a rule (Unicode, 3.12). */
static unsigned take_apart_hangul(uint32_t c, uint32_t *to)
{
    const uint32_t index = c - 0xAC00;
    to[0] = 0x1100 + index / 588;
    to[1] = 0x1161 + index % 588 / 28;
    to[2] = 0x11A7 + index % 28;
    return index % 28 == 0 ? 2 : 3;
}

static unsigned take_apart(uint32_t c, uint32_t *to)
{
    uint32_t back[PARTS_MOST];
    unsigned n = 0, made = 0;
    if (c >= 0xAC00 && c < 0xAC00 + 11172)
        return take_apart_hangul(c, to);
    while (n < PARTS_MOST - 1) {
        const parts *p =
            c < 0xC0 ? NULL
                     : bsearch(&c, decompositions, sizeof decompositions / sizeof *decompositions,
                               sizeof *decompositions, compare_parts);
        if (p == NULL)
            break;
        if (p->second != 0)
            back[n++] = p->second;
        c = p->first;
    }
    to[made++] = c;
    while (n > 0)
        to[made++] = back[--n];
    return made;
}

static void put(text_buf *out, uint32_t c)
{
    unsigned char b[4];
    unsigned n = 1;
    if (c < 0x80) {
        b[0] = (unsigned char)c;
    } else {
        n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        for (unsigned i = n - 1; i > 0; i--, c >>= 6)
            b[i] = (unsigned char)(0x80 | (c & 0x3F));
        b[0] = (unsigned char)((0xF00u >> n & 0xF0) | c);
    }
    text_append(out, b, n);
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
    for (size_t i = 0; i < *count; i++)
        put(out, points[i] & ((1u << CLASS_SHIFT) - 1));
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
            const unsigned made = take_apart(c, all + count);
            for (unsigned i = 0; i < made; i++)
                all[count + i] |= (uint32_t)class_of(all[count + i]) << CLASS_SHIFT;
            count += made;
        }
        at += n > 0 ? n : 1;
    }
    flush(all, &count, out);
    vec_release(&points);
    return text_check(out, err);
}
