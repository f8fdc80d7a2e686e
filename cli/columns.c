/* columns.c: the tables of table.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    size_t widths[COLUMNS_MAX];
    char *text;
    size_t nbytes, capacity;
    cell *cells;
    size_t ncells, cells_capacity;
    size_t blanks; /* to be printed before the next text of the line */
    bool omitted[COLUMNS_MAX];
    size_t omit_next[COLUMNS_MAX]; /* omit_count columns, the first to be omitted first */
    size_t omit_count;
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

/* Prints column i. A line gets no trailing blanks. */
static void put_cell(table *c, size_t i, const char *text, size_t nbytes, size_t width)
{
    if (c->omitted[i])
        return;
    const size_t fill = width < c->widths[i] ? c->widths[i] - width : 0;
    size_t unused = fill;
    c->blanks = i > 0 ? c->blanks + 1 : c->indented ? 2 : 0;
    if (c->heads[i].kind == TABLE_NUMBER)
        c->blanks += fill;
    if (nbytes > 0) {
        put_spaces(c->blanks);
        c->blanks = 0;
        unused = c->widths[i] - text_print(text, nbytes, c->widths[i]);
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

/* Makes the widest names narrower until the lines fit the terminal. */
static void fit_widths(table *c)
{
    size_t width = c->ncolumns - 1 + (c->indented ? 2 : 0), least = width;
    for (size_t i = 0; i < c->ncolumns; i++) {
        const bool shrinks = c->heads[i].kind == TABLE_NAME && c->widths[i] > SHORTENED_WIDTH_MIN;
        width += c->widths[i];
        least += shrinks ? SHORTENED_WIDTH_MIN : c->widths[i];
    }
    for (size_t i = 0; c->to->columns > 0 && least > c->to->columns && i < c->omit_count; i++) {
        const size_t column = c->omit_next[i];
        c->omitted[column] = true;
        least -= c->widths[column] + 1;
        width -= c->widths[column] + 1;
    }
    while (c->to->columns > 0 && width > c->to->columns) {
        size_t widest = c->ncolumns;
        for (size_t i = 0; i < c->ncolumns; i++)
            if (c->heads[i].kind == TABLE_NAME && c->widths[i] > SHORTENED_WIDTH_MIN &&
                (widest == c->ncolumns || c->widths[i] > c->widths[widest]))
                widest = i;
        if (widest == c->ncolumns)
            return;
        c->widths[widest]--;
        width--;
    }
}

bool table_print(table *c)
{
    if (c == NULL)
        return false;
    fit_widths(c);
    if (c->ncells > 0)
        put_heads(c);
    for (size_t k = 0, at = 0; k < c->ncells; k++) {
        if (k % c->ncolumns == 0)
            putchar('\n');
        put_cell(c, k % c->ncolumns, c->text + at, c->cells[k].end - at, c->cells[k].width);
        at = c->cells[k].end;
    }
    if (c->ncells > 0)
        putchar('\n');
    const bool ok = !c->failed;
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
