/* columns.c: the tables of table.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"

#define COLUMNS_MAX 12u

/* Least width of names that are shortened. */
#define NAME_WIDTH_MIN 20u

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
    bool indented;
    bool failed;
};

/* Approximate width of the character at text[i] on a terminal, in any locale, and 0 inside one: U+3000 to U+DFFF
 * take two columns, combining accents (U+0300 to U+036F) none. (libsmartcols loops forever over some of these in the C
 * locale.) */
static size_t width_at(const char *text, size_t nbytes, size_t i)
{
    const unsigned char *s = (const unsigned char *)text;
    const bool accent = s[i] == 0xCC || (s[i] == 0xCD && i + 1 < nbytes && s[i + 1] < 0xB0);
    if ((s[i] & 0xC0) == 0x80 || accent)
        return 0;
    return s[i] >= 0xE3 && s[i] <= 0xED ? 2 : 1;
}

static size_t width_of(const char *text, size_t nbytes)
{
    size_t width = 0;
    for (size_t i = 0; i < nbytes; i++)
        width += width_at(text, nbytes, i);
    return width;
}

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
        const size_t width = width_of(cells[i], n);
        c->cells[c->ncells++] = (cell){c->nbytes, width};
        if (width > c->widths[i])
            c->widths[i] = width;
    }
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

/* Prints `most` columns of a text, with "..." in the middle. Returns the printed width. */
static size_t put_shortened(const char *text, size_t nbytes, size_t width, size_t most)
{
    const size_t head = (most - 3) / 2, tail = most - 3 - head;
    size_t end = 0, begin = 0, shown = 0, passed = 0;
    while (end < nbytes && shown + width_at(text, nbytes, end) <= head)
        shown += width_at(text, nbytes, end++);
    while (begin < nbytes && width - passed > tail)
        passed += width_at(text, nbytes, begin++);
    while (begin < nbytes && width_at(text, nbytes, begin) == 0)
        begin++;
    fwrite(text, 1, end, stdout);
    fputs("...", stdout);
    fwrite(text + begin, 1, nbytes - begin, stdout);
    return shown + 3 + width - passed;
}

/* Prints column i. A line gets no trailing blanks. */
static void put_cell(table *c, size_t i, const char *text, size_t nbytes, size_t width)
{
    const bool shortened = width > c->widths[i];
    const size_t fill = shortened ? 0 : c->widths[i] - width;
    size_t unused = fill;
    c->blanks = i > 0 ? c->blanks + 1 : c->indented ? 2 : 0;
    if (c->heads[i].kind == TABLE_NUMBER)
        c->blanks += fill;
    if (nbytes > 0) {
        put_spaces(c->blanks);
        c->blanks = 0;
        if (shortened)
            unused = c->widths[i] - put_shortened(text, nbytes, width, c->widths[i]);
        else
            fwrite(text, 1, nbytes, stdout);
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
    size_t width = c->ncolumns - 1 + (c->indented ? 2 : 0);
    for (size_t i = 0; i < c->ncolumns; i++)
        width += c->widths[i];
    while (c->to->columns > 0 && width > c->to->columns) {
        size_t widest = c->ncolumns;
        for (size_t i = 0; i < c->ncolumns; i++)
            if (c->heads[i].kind == TABLE_NAME && c->widths[i] > NAME_WIDTH_MIN &&
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
