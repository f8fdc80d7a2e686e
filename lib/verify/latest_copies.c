#include "verify/latest_copies.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "open/checkpoint.h"

/* Of a copy of a copy, each part of the name. */
enum { STRIPPED_MAX = 3, DIGITS_MAX = 3 };

/* The part [begin, end) of a name. */
typedef struct name_part {
    const char *name;
    size_t begin, end;
} name_part;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The end without digits; as it is if there are none, or too many. */
static size_t before_digits(const name_part *p, size_t end)
{
    size_t at = end;
    while (at > p->begin && is_digit(p->name[at - 1]))
        at--;
    return end - at <= DIGITS_MAX ? at : end;
}

static size_t before_any(const name_part *p, size_t end, const char *set)
{
    while (end > p->begin && strchr(set, p->name[end - 1]) != NULL)
        end--;
    return end;
}

/* Without the word "copy" at the end. */
static size_t before_word(const name_part *p, size_t end)
{
    static const char word[] = "copy";
    const size_t n = sizeof word - 1;
    return end >= p->begin + n && strncasecmp(p->name + end - n, word, n) == 0 ? end - n : end;
}

/* "NAME (2)", "NAME (copy)", "NAME (another copy)" */
static size_t before_brackets(const name_part *p)
{
    if (p->end == p->begin || p->name[p->end - 1] != ')')
        return p->end;
    const size_t inside = p->end - 1;
    size_t open = inside;
    while (open > p->begin && p->name[open - 1] != '(')
        open--;
    if (open == p->begin || open == inside ||
        (before_digits(p, inside) != open && before_word(p, inside) == inside))
        return p->end;
    return before_any(p, open - 1, " ");
}

/* "NAME copy", "NAME_copy2", "NAME - Copy" */
static size_t before_copy(const name_part *p)
{
    const size_t end = before_any(p, before_digits(p, p->end), " ");
    const size_t without = before_word(p, end);
    const size_t at = before_any(p, without, " _.-");
    return without < end && at < without ? at : p->end;
}

/* macOS: "NAME 2" */
static size_t before_number(const name_part *p)
{
    const size_t at = before_digits(p, p->end);
    return at < p->end && at > p->begin && p->name[at - 1] == ' ' ? before_any(p, at, " ") : p->end;
}

/* False: it is not a copy's name. */
static bool strip(name_part *p)
{
    static const char first[] = "Copy of ";
    const size_t n = sizeof first - 1;
    const size_t ends[] = {before_brackets(p), before_copy(p), before_number(p),
                           before_any(p, p->end, "~")};
    if (p->end - p->begin > n && strncasecmp(p->name + p->begin, first, n) == 0) {
        p->begin += n;
        return true;
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i] < p->end && ends[i] > p->begin) {
            p->end = ends[i];
            return true;
        }
    return false;
}

/* With the suffix of a file: "step-6 (1).pt" is a copy of "step-6.pt". */
static bool is_name(const name_part *p, const char *suffix, const char *name)
{
    const size_t n = p->end - p->begin;
    return strncmp(name, p->name + p->begin, n) == 0 && strcmp(name + n, suffix) == 0;
}

/* Of a copy of a copy, the first of them. */
static const latest_step *find_original(const latest_step *list, size_t count,
                                        const latest_step *copy)
{
    const char *name = text_file_name(copy->path);
    const latest_step *original = NULL;
    name_part p = {.name = name, .end = weights_stem_nbytes(name)};
    const char *suffix = name + p.end;
    for (unsigned stripped = 0; stripped < STRIPPED_MAX && strip(&p); stripped++)
        for (size_t i = 0; i < count; i++)
            if (&list[i] != copy && is_name(&p, suffix, text_file_name(list[i].path)))
                original = &list[i];
    return original;
}

void latest_copies_find(latest_step *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const latest_step *original = find_original(list, count, &list[i]);
        if (original == NULL)
            continue;
        list[i].copy_of = original->path;
        list[i].name.step = original->name.step;
        list[i].name.minor = original->name.minor;
        list[i].name.version = original->name.version;
    }
}

void latest_copies_warn(const latest_step *list, size_t count, const latest_step *chosen,
                        const logger *log)
{
    const latest_step *first = NULL;
    char more[40] = "";
    uint64_t copies = 0;
    if (chosen->copy_of != NULL)
        log_warn(log, FSDPCK_FINDING_LATEST_NAME, "compare the two before you resume from it",
                 "'%s' is a copy of '%s' by its name, which is not complete",
                 text_file_name(chosen->path), text_file_name(chosen->copy_of));
    for (size_t i = 0; i < count; i++)
        if (list[i].copy_of == chosen->path && copies++ == 0)
            first = &list[i];
    if (copies > 1)
        snprintf(more, sizeof more, " and %" PRIu64 " more", copies - 1);
    if (copies > 0)
        log_warn(log, FSDPCK_FINDING_LATEST_NAME,
                 "compare them, then move the one that you do not need out of the folder",
                 "'%s'%s: a copy of '%s' by its name, not considered", text_file_name(first->path),
                 more, text_file_name(chosen->path));
}
