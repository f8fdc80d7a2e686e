/* A list of digests, as `fsdpck digest` prints it, compared with the digests of a checkpoint. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compare/digest.h"

bool digest_line_parse(const char *text, size_t nbytes, digest_line *l)
{
    if (nbytes < 18 || text[16] != ' ' || text[17] != ' ')
        return false;
    l->value = 0;
    for (size_t i = 0; i < 16; i++) {
        const char c = text[i];
        const bool digit = c >= '0' && c <= '9';
        if (!digit && (c < 'a' || c > 'f'))
            return false;
        l->value = l->value << 4 | (uint64_t)(digit ? c - '0' : c - 'a' + 10);
    }
    l->type = text + 18;
    for (l->type_nbytes = 0; 18 + l->type_nbytes < nbytes && l->type[l->type_nbytes] != ' ';)
        l->type_nbytes++;
    const size_t at = 18 + l->type_nbytes + 2;
    if (l->type_nbytes == 0 || at > nbytes || memcmp(text + at - 2, "  ", 2) != 0)
        return false;
    l->name = text + at;
    l->name_nbytes = nbytes - at;
    return true;
}

static fsdpck_status refuse(const digest_line *l, const char *what, fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, DIGEST_LIST, ("line %zu of the list %s", l->number, what),
        (expected, "16 hexadecimal digits, two blanks, dtype[shape], two blanks, a name"));
}

static int compare_lines(const void *a, const void *b)
{
    const digest_line *x = a, *y = b;
    const int diff = text_order(x->name, x->name_nbytes, y->name, y->name_nbytes);
    return diff != 0 ? diff : (x->number > y->number) - (x->number < y->number);
}

/* Lines of tensors, by name. *whole: the line of the whole list; its type_nbytes is 0 if
 * missing. */
static fsdpck_status read_list(const char *text, size_t nbytes, vec *lines, digest_line *whole,
                               fsdpck_error *err)
{
    size_t number = 0;
    *whole = (digest_line){0};
    for (size_t at = 0; at < nbytes;) {
        const char *end = memchr(text + at, '\n', nbytes - at);
        size_t length = end == NULL ? nbytes - at : (size_t)(end - (text + at));
        const size_t next = at + length + 1;
        length -=
            length > 0 && text[at + length - 1] == '\r'; /* names have none: they are escaped */
        digest_line l = {.number = ++number};
        const bool blank = length == 0 || text[at] == '#';
        const bool good = blank || digest_line_parse(text + at, length, &l);
        if (!good)
            return refuse(&l, "cannot be read", err);
        at = next;
        if (blank)
            continue;
        if (text_is(l.type, l.type_nbytes, "whole")) {
            *whole = l;
            continue;
        }
        RETURN_IF(vec_add(lines, &l, err));
    }
    if (lines->count > 1)
        qsort(lines->items, lines->count, sizeof(digest_line), compare_lines);
    for (size_t i = 1; i < lines->count; i++) {
        const digest_line *l = VEC_AT(lines, const digest_line, i), *before = l - 1;
        if (text_order(l->name, l->name_nbytes, before->name, before->name_nbytes) == 0)
            return refuse(l, "repeats a name of another line", err);
    }
    return FSDPCK_OK;
}

/* Names are compared as they are printed. */
typedef struct printed_name {
    char *text;
    uint64_t row;
} printed_name;

static int compare_printed(const void *a, const void *b)
{
    const printed_name *x = a, *y = b;
    const int diff = strcmp(x->text, y->text);
    return diff != 0 ? diff : (x->row > y->row) - (x->row < y->row);
}

static fsdpck_status print_names(const fsdpck_digests *d, printed_name *names, fsdpck_error *err)
{
    for (uint64_t i = 0; i < d->rows.count; i++) {
        const size_t capacity = 4 * d->rows.rows[i].name_nbytes + 1;
        names[i] = (printed_name){.text = malloc(capacity), .row = i};
        if (names[i].text == NULL)
            return error_set_nomem(err, capacity);
        escape_text(names[i].text, capacity, d->rows.rows[i].name, d->rows.rows[i].name_nbytes);
    }
    if (d->rows.count > 1)
        qsort(names, d->rows.count, sizeof *names, compare_printed);
    return FSDPCK_OK;
}

static void report_row(fsdpck_digest_fn fn, void *arg, fsdpck_digest_verdict verdict,
                       const char *name, size_t name_nbytes, const char *expected,
                       size_t expected_nbytes, const char *found, const uint64_t *digests)
{
    const fsdpck_digest_result result = {
        .struct_nbytes = sizeof result,
        .verdict = verdict,
        .name = name,
        .name_nbytes = name_nbytes,
        .expected = expected,
        .expected_nbytes = expected_nbytes,
        .found = found,
        .expected_digest = digests == NULL ? 0 : digests[0],
        .found_digest = digests == NULL ? 0 : digests[1],
    };
    fn(arg, &result);
}

/* Both lists are in name order. Returns the number of mismatches. */
static uint64_t merge(const fsdpck_digests *d, const printed_name *names, const vec *lines,
                      fsdpck_digest_fn fn, void *arg)
{
    uint64_t bad = 0;
    uint64_t i = 0;
    size_t k = 0;
    while (i < d->rows.count || k < lines->count) {
        const digest_line *l = k < lines->count ? VEC_AT(lines, const digest_line, k) : NULL;
        const digest_row *row = i < d->rows.count ? &d->rows.rows[names[i].row] : NULL;
        int order = l == NULL ? -1 : 1;
        if (l != NULL && row != NULL)
            order = text_order(names[i].text, strlen(names[i].text), l->name, l->name_nbytes);
        const char *type = row == NULL ? NULL : d->rows.texts.text + row->type_at;
        fsdpck_digest_verdict verdict = FSDPCK_DIGEST_OK;
        if (order < 0)
            verdict = FSDPCK_DIGEST_EXTRA;
        else if (order > 0)
            verdict = FSDPCK_DIGEST_MISSING;
        else if (text_order(type, strlen(type), l->type, l->type_nbytes) != 0)
            verdict = FSDPCK_DIGEST_TYPE_DIFFERS;
        else if (row->digest != l->value)
            verdict = FSDPCK_DIGEST_DIFFERS;
        bad += verdict != FSDPCK_DIGEST_OK;
        if (order > 0)
            report_row(fn, arg, verdict, l->name, l->name_nbytes, l->type, l->type_nbytes, NULL,
                       NULL);
        else
            report_row(fn, arg, verdict, names[i].text, strlen(names[i].text),
                       order == 0 ? l->type : NULL, order == 0 ? l->type_nbytes : 0, type,
                       order == 0 ? (const uint64_t[]){l->value, row->digest} : NULL);
        i += order <= 0;
        k += order >= 0;
    }
    return bad;
}

fsdpck_status fsdpck_digests_check(const fsdpck_digests *d, const char *text, size_t nbytes,
                                   fsdpck_digest_fn fn, void *arg, uint64_t *bad, fsdpck_error *err)
{
    vec lines = VEC_OF(digest_line, &d->run.src->metadata);
    digest_line whole;
    printed_name *names = calloc(d->rows.count + 1, sizeof *names);
    fsdpck_status st =
        names != NULL ? FSDPCK_OK : error_set_nomem(err, d->rows.count * sizeof *names);
    if (st == FSDPCK_OK)
        st = read_list(text, nbytes, &lines, &whole, err);
    if (st == FSDPCK_OK)
        st = print_names(d, names, err);
    if (st == FSDPCK_OK) {
        *bad = merge(d, names, &lines, fn, arg);
        if (whole.type_nbytes > 0 && *bad == 0 && whole.value != d->rows.whole) {
            *bad = 1;
            report_row(fn, arg, FSDPCK_DIGEST_DIFFERS, "the whole", 9, NULL, 0, NULL,
                       (const uint64_t[]){whole.value, d->rows.whole});
        }
    }
    for (uint64_t i = 0; names != NULL && i < d->rows.count; i++)
        free(names[i].text);
    free(names);
    vec_release(&lines);
    return st;
}
