/* columns.c: the tables of table.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "short_names.h"
#include "table.h"
#include "text_width.h"

#define COLUMNS_MAX 12u

/* A cell: its end in `text`, and its width in characters. */
typedef struct cell {
    size_t end, width;
} cell;

struct table {
    const terminal *to;
    const table_column *heads;
    size_t ncolumns;
    size_t widths[COLUMNS_MAX];  /* of the longest texts */
    size_t printed[COLUMNS_MAX]; /* the same, or less where names are shortened */
    char *text;
    size_t nbytes, capacity;
    cell *cells;
    size_t ncells, cells_capacity;
    size_t blanks;                 /* to be printed before the next text of the line */
    size_t omit_next[COLUMNS_MAX]; /* omit_count columns, the first to be omitted first */
    size_t omit_count, omitted;    /* omitted: the first of them, which are */
    bool *alike; /* by row: its short name is that of a different name; NULL: none */
    bool indented;
    bool failed;
};

static bool grow(void **items, size_t *capacity, size_t wanted, size_t item_nbytes)
{
    if (wanted <= *capacity)
        return true;
    const size_t more = wanted + wanted / 2 + 64;
    void *moved = realloc(*items, more * item_nbytes);
    if (moved == NULL)
        return false;
    *items = moved;
    *capacity = more;
    return true;
}

void table_add(table *c, const char *const *cells)
{
    if (c == NULL || c->failed)
        return;
    if (cells == NULL) {
        c->failed = true;
        return;
    }
    c->failed =
        !grow((void **)&c->cells, &c->cells_capacity, c->ncells + c->ncolumns, sizeof *c->cells);
    for (size_t i = 0; !c->failed && i < c->ncolumns; i++) {
        const size_t n = strlen(cells[i]);
        c->failed = !grow((void **)&c->text, &c->capacity, c->nbytes + n + 1, 1);
        if (c->failed)
            return;
        memcpy(c->text + c->nbytes, cells[i], n);
        c->nbytes += n;
        const size_t width = text_width(cells[i], n);
        c->cells[c->ncells++] = (cell){c->nbytes, width};
        if (width > c->widths[i])
            c->widths[i] = width;
    }
}

void table_may_omit(table *c, const char *head)
{
    for (size_t i = 0; c != NULL && i < c->ncolumns; i++)
        if (strcmp(c->heads[i].head, head) == 0)
            c->omit_next[c->omit_count++] = i;
}

size_t table_rows(const table *c)
{
    return c == NULL ? 0 : c->ncells / c->ncolumns;
}

static void put_spaces(size_t n)
{
    static const char spaces[] = "                                                                ";
    for (size_t part; n > 0; n -= part) {
        part = n < sizeof spaces - 1 ? n : sizeof spaces - 1;
        fwrite(spaces, 1, part, stdout);
    }
}

static bool is_omitted(const table *c, size_t column)
{
    for (size_t i = 0; i < c->omitted; i++)
        if (c->omit_next[i] == column)
            return true;
    return false;
}

/* Prints column i. A line gets no trailing blanks. */
static void put_cell(table *c, size_t i, const char *text, size_t nbytes, size_t width)
{
    if (is_omitted(c, i))
        return;
    const size_t fill = width < c->printed[i] ? c->printed[i] - width : 0;
    size_t unused = fill;
    c->blanks = i > 0 ? c->blanks + 1 : c->indented ? 2 : 0;
    if (c->heads[i].kind == TABLE_NUMBER)
        c->blanks += fill;
    if (nbytes > 0) {
        put_spaces(c->blanks);
        c->blanks = 0;
        unused = c->printed[i] - text_print(text, nbytes, c->printed[i]);
    }
    if (c->heads[i].kind != TABLE_NUMBER)
        c->blanks += unused;
}

static void put_heads(table *c)
{
    fputs(paint(c->to, PAINT_HEADING), stdout);
    for (size_t i = 0; i < c->ncolumns; i++)
        put_cell(c, i, c->heads[i].head, strlen(c->heads[i].head), strlen(c->heads[i].head));
    fputs(paint(c->to, PAINT_END), stdout);
}

/* ---- the width of the terminal ---- */

/* Of the lines, if columns are omitted as now; *least: with the shortest names. */
static size_t find_width(const table *c, size_t *least)
{
    size_t width = c->indented ? 2 : 0;
    *least = width;
    for (size_t i = 0; i < c->ncolumns; i++) {
        const bool shrinks = c->heads[i].kind == TABLE_NAME && c->widths[i] > SHORTENED_WIDTH_MIN;
        const size_t blank = i > 0;
        if (is_omitted(c, i))
            continue;
        width += c->widths[i] + blank;
        *least += (shrinks ? SHORTENED_WIDTH_MIN : c->widths[i]) + blank;
    }
    return width;
}

/* Makes the widest names narrower until the lines fit the terminal. */
static void shrink_names(table *c)
{
    size_t least, width = find_width(c, &least);
    memcpy(c->printed, c->widths, sizeof c->printed);
    while (width > c->to->columns) {
        size_t widest = c->ncolumns;
        for (size_t i = 0; i < c->ncolumns; i++)
            if (c->heads[i].kind == TABLE_NAME && c->printed[i] > SHORTENED_WIDTH_MIN &&
                (widest == c->ncolumns || c->printed[i] > c->printed[widest]))
                widest = i;
        if (widest == c->ncolumns)
            return;
        c->printed[widest]--;
        width--;
    }
}

/* The first column of all rows; NULL: no memory. */
static text_part *list_names(const table *c)
{
    const size_t count = table_rows(c);
    text_part *names = malloc((count + 1) * sizeof *names);
    for (size_t i = 0; names != NULL && i < count; i++) {
        const size_t k = i * c->ncolumns, begin = k == 0 ? 0 : c->cells[k - 1].end;
        names[i] = (text_part){c->text + begin, c->cells[k].end - begin};
    }
    return names;
}

/* Shortens names and omits columns. Fewer columns are omitted where that does not make more names unique. */
static void fit_terminal(table *c)
{
    size_t least;
    bool any = true;
    memcpy(c->printed, c->widths, sizeof c->printed);
    if (c->to->columns == 0 || find_width(c, &least) <= c->to->columns)
        return;
    while (c->omitted < c->omit_count && least > c->to->columns) {
        c->omitted++;
        (void)find_width(c, &least);
    }
    const size_t needed = c->omitted;
    text_part *names = list_names(c);
    c->alike = calloc(table_rows(c) + 1, sizeof *c->alike);
    c->failed = c->failed || names == NULL || c->alike == NULL;
    for (; !c->failed && any && c->omitted <= c->omit_count; c->omitted += any) {
        shrink_names(c);
        c->failed = !short_names_mark(names, table_rows(c), c->printed[0], c->alike, &any);
    }
    if (any) {
        c->omitted = needed;
        shrink_names(c);
        c->failed =
            c->failed || !short_names_mark(names, table_rows(c), c->printed[0], c->alike, &any);
    }
    free(names);
}

/* Prints a word, on a new line if it does not fit. */
static void put_word(const table *c, size_t *at, const char *word)
{
    const size_t n = strlen(word);
    if (*at > 0 && *at + 1 + n > c->to->columns) {
        putchar('\n');
        *at = 0;
    }
    *at += (size_t)printf("%s%s", *at > 0 ? " " : "", word);
}

/* The last line: the omitted columns, and the width for all. */
static void put_omitted(table *c)
{
    char word[64];
    size_t at = 0, least;
    const size_t omitted = c->omitted;
    if (omitted == 0)
        return;
    c->omitted = 0;
    const size_t width = find_width(c, &least);
    put_word(c, &at, "omitted");
    put_word(c, &at, "at");
    put_word(c, &at, "this");
    put_word(c, &at, "width:");
    for (size_t i = 0; i < omitted; i++) {
        snprintf(word, sizeof word, "%s%s", c->heads[c->omit_next[i]].head,
                 i + 1 < omitted ? "," : ";");
        put_word(c, &at, word);
    }
    snprintf(word, sizeof word, "COLUMNS=%zu", width);
    put_word(c, &at, word);
    put_word(c, &at, "shows");
    put_word(c, &at, "all");
    putchar('\n');
}

/* ---- the table ---- */

static void put_row(table *c, size_t row)
{
    for (size_t i = 0; i < c->ncolumns; i++) {
        const size_t k = row * c->ncolumns + i, begin = k == 0 ? 0 : c->cells[k - 1].end;
        const char *text = c->text + begin;
        const size_t nbytes = c->cells[k].end - begin;
        const bool is_whole = i == 0 && c->alike != NULL && c->alike[row];
        if (is_whole)
            printf("%s%.*s\n", c->indented ? "  " : "", (int)nbytes, text);
        put_cell(c, i, text, is_whole ? 0 : nbytes, is_whole ? 0 : c->cells[k].width);
    }
}

bool table_print(table *c)
{
    if (c == NULL)
        return false;
    fit_terminal(c);
    if (c->ncells > 0)
        put_heads(c);
    for (size_t row = 0; row < table_rows(c); row++) {
        putchar('\n');
        put_row(c, row);
    }
    if (c->ncells > 0)
        putchar('\n');
    if (c->ncells > 0)
        put_omitted(c);
    const bool ok = !c->failed;
    free(c->alike);
    free(c->text);
    free(c->cells);
    free(c);
    return ok;
}

table *table_new(const terminal *to, const table_column *heads, size_t count)
{
    table *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->to = to;
    c->heads = heads;
    c->ncolumns = count;
    for (size_t i = 0; i < count; i++)
        c->widths[i] = strlen(heads[i].head);
    return c;
}

table *table_new_indented(const terminal *to, const table_column *heads, size_t count)
{
    table *c = table_new(to, heads, count);
    if (c != NULL)
        c->indented = true;
    return c;
}
