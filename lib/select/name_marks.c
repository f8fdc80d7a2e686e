#include "select/name_marks.h"

#include <string.h>

/* A range of a name, and the text that replaces it. */
typedef struct name_edit {
    size_t begin, end;
    const char *text;
    size_t nbytes;
} name_edit;

/* Leaves out the bytes that stay the same, first at the end. */
static void trim(const text_buf *name, name_edit *e)
{
    while (e->begin < e->end && e->nbytes > 0 && name->text[e->end - 1] == e->text[e->nbytes - 1]) {
        e->end--;
        e->nbytes--;
    }
    while (e->begin < e->end && e->nbytes > 0 && name->text[e->begin] == e->text[0]) {
        e->begin++;
        e->text++;
        e->nbytes--;
    }
}

static bool is_fixed(char mark)
{
    return mark != MARK_FREE && mark != MARK_DOT && mark != MARK_BOUND && mark != MARK_DIGITS;
}

/* The digits of a flat name may go with their neighbours, but do not become other digits. */
static bool is_in_place(const char *marks, size_t count, const name_edit *e)
{
    for (size_t i = e->begin; i < e->end; i++)
        if (marks[i] != MARK_DIGITS)
            return false;
    const bool at_digits = (e->begin > 0 && marks[e->begin - 1] == MARK_DIGITS) ||
                           (e->end < count && marks[e->end] == MARK_DIGITS);
    return e->begin < e->end ||
           (e->nbytes > 0 && at_digits && memchr(e->text, '.', e->nbytes) == NULL);
}

static bool is_permitted(const text_buf *marks, const name_edit *e)
{
    const char *m = marks->text;
    const bool removes = e->begin < e->end;
    for (size_t i = e->begin; i < e->end; i++)
        if (is_fixed(m[i]) || m[i] == MARK_BOUND)
            return false;
    if ((e->begin > 0 && is_fixed(m[e->begin - 1])) || is_in_place(m, marks->nbytes, e))
        return false;
    if (e->end >= marks->nbytes || !is_fixed(m[e->end]))
        return true;
    /* Before a fixed key: only whole keys go or come. */
    const bool at_key = e->begin == 0 || (m[e->begin - 1] == MARK_DOT && removes);
    return at_key && (e->nbytes == 0 ? removes : e->text[e->nbytes - 1] == '.');
}

static fsdpck_status splice(text_buf *to, const name_edit *e, fsdpck_error *err)
{
    const size_t rest = to->nbytes - e->end, removed = e->end - e->begin;
    if (e->nbytes > removed)
        text_append(to, e->text, e->nbytes - removed); /* for its length */
    RETURN_IF(text_check(to, err));
    memmove(to->text + e->begin + e->nbytes, to->text + e->end, rest);
    if (e->nbytes > 0)
        memcpy(to->text + e->begin, e->text, e->nbytes);
    to->nbytes = e->begin + e->nbytes + rest;
    to->text[to->nbytes] = '\0';
    return FSDPCK_OK;
}

fsdpck_status name_marks_edit(text_buf *name, text_buf *marks, size_t begin, size_t end,
                              const char *text, size_t nbytes, bool *applied, fsdpck_error *err)
{
    name_edit e = {begin, end, text, nbytes};
    trim(name, &e);
    *applied = true;
    if (e.begin == e.end && e.nbytes == 0)
        return FSDPCK_OK;
    if (marks != NULL && marks->nbytes > 0) {
        *applied = is_permitted(marks, &e);
        if (!*applied)
            return FSDPCK_OK;
        const bool before_fixed = e.end < marks->nbytes && is_fixed(marks->text[e.end]);
        RETURN_IF(splice(marks, &e, err));
        if (e.nbytes > 0)
            memset(marks->text + e.begin, MARK_FREE, e.nbytes);
        if (before_fixed && e.nbytes > 0)
            marks->text[e.begin + e.nbytes - 1] = MARK_DOT;
    }
    return splice(name, &e, err);
}

bool name_marks_find(const text_buf *marks, char letter, size_t *begin, size_t *end)
{
    const char *found = marks->nbytes == 0 ? NULL : memchr(marks->text, letter, marks->nbytes);
    if (found == NULL)
        return false;
    *begin = *end = (size_t)(found - marks->text);
    while (*end < marks->nbytes && marks->text[*end] == letter)
        ++*end;
    return true;
}

fsdpck_status name_marks_put_param(text_buf *name, text_buf *marks, size_t begin, size_t end,
                                   const char *text, size_t nbytes, fsdpck_error *err)
{
    const name_edit e = {begin, end, text, nbytes};
    RETURN_IF(splice(marks, &e, err));
    if (nbytes > 0)
        memset(marks->text + begin, MARK_FREE, nbytes);
    return splice(name, &e, err);
}
