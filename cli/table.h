/* table.h: columns of text on stdout. Columns are as wide as their longest text. If a table is wider than the
 * terminal, its names are shortened, with most of their ends kept. Columns are omitted if it is still too wide, or if
 * two names would look the same; a last line lists them. Names that still look the same are printed whole, on a line
 * of their own above the other cells. Without a terminal nothing of this is done.
 *
 *     static const table_column columns[] = {{"NAME", TABLE_NAME}, {"BYTES", TABLE_NUMBER}};
 *     table *rows = table_new(&c->out, columns, 2);        // NULL is fine for the next two
 *     table_add(rows, (const char *const[]){name, nbytes});
 *     if (!table_print(rows)) no memory;
 */
#ifndef FSDPCK_CLI_TABLE_H
#define FSDPCK_CLI_TABLE_H

#include "terminal.h"

typedef struct table table; /* columns.c */

typedef enum table_kind {
    TABLE_TEXT,
    TABLE_NUMBER, /* aligned to the right */
    TABLE_NAME    /* may be shortened */
} table_kind;

typedef struct table_column {
    const char *head;
    table_kind kind;
} table_column;

/* `to` is stdout. heads are borrowed, as `to`; at most 12. */
table *table_new(const terminal *to, const table_column *heads, size_t count);
table *table_new_indented(const terminal *to, const table_column *heads, size_t count);
/* The next column to omit, by its head. */
void table_may_omit(table *t, const char *head);
/* One text per column, copied; names from files must be escaped. NULL: memory ran out for them. */
void table_add(table *t, const char *const *cells);
size_t table_rows(const table *t);
/* Prints and frees. False if memory ran out, here or before. */
bool table_print(table *t);

#endif
