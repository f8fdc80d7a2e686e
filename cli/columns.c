/* columns.c: the tables of table.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"

#define COLUMNS_MAX 12u

/* A cell: its end in `text`, and its width in characters. */
typedef struct cell {
    size_t end, width;
} cell;

struct table {
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

/* Approximate width on a terminal, in any locale: U+3000 to U+DFFF take two columns, combining accents
 * (U+0300 to U+036F) none. (libsmartcols loops forever over some of these in the C locale.) */
static size_t width_of(const char *text, size_t nbytes)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t width = 0;
    for (size_t i = 0; i < nbytes; i++) {
        const bool accent = s[i] == 0xCC || (s[i] == 0xCD && i + 1 < nbytes && s[i + 1] < 0xB0);
        if ((s[i] & 0xC0) != 0x80 && !accent)
            width += s[i] >= 0xE3 && s[i] <= 0xED ? 2 : 1;
    }
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

/* Prints column i. A line gets no trailing blanks. */
static void put_cell(table *c, size_t i, const char *text, size_t nbytes, size_t width)
{
    const size_t fill = c->widths[i] - width;
    c->blanks = i > 0 ? c->blanks + 1 : c->indented ? 2 : 0;
    if (c->heads[i].right)
        c->blanks += fill;
    if (nbytes > 0) {
        put_spaces(c->blanks);
        fwrite(text, 1, nbytes, stdout);
        c->blanks = 0;
    }
    if (!c->heads[i].right)
        c->blanks += fill;
}

bool table_print(table *c)
{
    if (c == NULL)
        return false;
    for (size_t i = 0; i < c->ncolumns && c->ncells > 0; i++)
        put_cell(c, i, c->heads[i].head, strlen(c->heads[i].head), strlen(c->heads[i].head));
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

table *table_new(const table_column *heads, size_t count)
{
    table *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->heads = heads;
    c->ncolumns = count;
    for (size_t i = 0; i < count; i++)
        c->widths[i] = strlen(heads[i].head);
    return c;
}

table *table_new_indented(const table_column *heads, size_t count)
{
    table *c = table_new(heads, count);
    if (c != NULL)
        c->indented = true;
    return c;
}
