#include "text_width.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MARK "..."
/* Numbers in the omitted part of a name that are shown: of a layer, an expert. */
#define NUMBERS_MAX 2u
/* Least width of the beginning and the end of a name, beside the numbers. */
#define ENDS_WIDTH_MIN 9u

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

/* A part of a text that is printed, in bytes. */
typedef struct span {
    size_t begin, end;
} span;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The first number from `at` on that is a part of a name, such as 12 in "layers.12.weight". */
static bool find_number(const char *text, size_t nbytes, size_t at, span *number)
{
    for (; at < nbytes; at++) {
        if (!is_digit(text[at]) || (at > 0 && is_word(text[at - 1])))
            continue;
        number->begin = at;
        while (at < nbytes && is_digit(text[at]))
            at++;
        number->end = at;
        if (at == nbytes || !is_word(text[at]))
            return true;
    }
    return false;
}

/* The parts that fit `most` columns with marks between them: spans[0] the beginning, then `numbers` numbers, then the
 * end. Ends of names differ more than their beginnings. False if the numbers leave too little room. */
static bool place_spans(const char *text, size_t nbytes, size_t most, span *spans, size_t numbers)
{
    const size_t marks = (numbers + 1) * strlen(MARK);
    size_t digits = 0, shown = 0, rest = text_width(text, nbytes);
    span *const head = &spans[0], *const tail = &spans[numbers + 1];
    for (size_t i = 1; i <= numbers; i++)
        digits += spans[i].end - spans[i].begin;
    if (numbers > 0 && marks + digits + ENDS_WIDTH_MIN > most)
        return false;
    const size_t room = most - marks - digits, before = room / 4, after = room - before;
    *head = (span){0, 0};
    *tail = (span){0, nbytes};
    while (head->end < nbytes && shown + width_at(text, nbytes, head->end) <= before)
        shown += width_at(text, nbytes, head->end++);
    while (tail->begin < nbytes && rest > after)
        rest -= width_at(text, nbytes, tail->begin++);
    while (tail->begin < nbytes && width_at(text, nbytes, tail->begin) == 0)
        tail->begin++;
    if (numbers > 0 && head->end > spans[1].begin)
        head->end = spans[1].begin;
    if (numbers > 0 && tail->begin < spans[numbers].end)
        tail->begin = spans[numbers].end;
    return true;
}

/* The numbers that the beginning and the end of a name omit, at most NUMBERS_MAX. */
static size_t find_omitted(const char *text, size_t nbytes, const span *head, const span *tail,
                           span *numbers)
{
    size_t count = 0;
    span found;
    for (size_t at = 0; count < NUMBERS_MAX && find_number(text, nbytes, at, &found);
         at = found.end)
        if (found.end > head->end && found.begin < tail->begin)
            numbers[count++] = found;
    return count;
}

size_t text_shorten(const char *text, size_t nbytes, size_t most, text_part parts[TEXT_PARTS_MAX])
{
    span kept[NUMBERS_MAX + 2], spans[NUMBERS_MAX + 2];
    size_t count = 2, made = 0;
    if (text_width(text, nbytes) <= most) {
        parts[0] = (text_part){text, nbytes};
        return 1;
    }
    (void)place_spans(text, nbytes, most, kept, 0);
    for (unsigned tries = 0; tries <= NUMBERS_MAX; tries++) {
        size_t numbers = find_omitted(text, nbytes, &kept[0], &kept[count - 1], spans + 1);
        while (numbers > count - 2 && !place_spans(text, nbytes, most, spans, numbers))
            numbers--;
        if (numbers <= count - 2)
            break;
        count = numbers + 2;
        memcpy(kept, spans, count * sizeof *spans);
    }
    for (size_t i = 0; i < count; i++) {
        const size_t from = i == 0 ? 0 : kept[i - 1].end, gap = kept[i].begin - from;
        const bool is_short = text_width(text + from, gap) <= strlen(MARK);
        parts[made++] = is_short ? (text_part){text + from, gap} : (text_part){MARK, strlen(MARK)};
        parts[made++] = (text_part){text + kept[i].begin, kept[i].end - kept[i].begin};
    }
    return made;
}

size_t text_print(const char *text, size_t nbytes, size_t most)
{
    text_part parts[TEXT_PARTS_MAX];
    const size_t count = text_shorten(text, nbytes, most, parts);
    size_t shown = 0;
    for (size_t i = 0; i < count; i++) {
        fwrite(parts[i].text, 1, parts[i].nbytes, stdout);
        shown += text_width(parts[i].text, parts[i].nbytes);
    }
    return shown;
}
