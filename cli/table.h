/* table.h: columns of text on stdout. Columns are as wide as their longest text and never truncated to
 * the width of the terminal.
 *
 *     static const table_column columns[] = {{"NAME", false}, {"BYTES", true}};
 *     table *rows = table_new(columns, 2);        // NULL is fine for the next two
 *     table_add(rows, (const char *const[]){name, nbytes});
 *     if (!table_print(rows)) no memory;
 */
#ifndef FSDPCK_CLI_TABLE_H
#define FSDPCK_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct table table; /* columns.c */

typedef struct table_column {
    const char *head;
    bool right; /* aligned to the right */
} table_column;

/* heads are borrowed; at most 12. */
table *table_new(const table_column *heads, size_t count);
table *table_new_indented(const table_column *heads, size_t count);
/* One text per column, copied; names from files must be escaped. NULL: memory ran out for them. */
void table_add(table *t, const char *const *cells);
size_t table_rows(const table *t);
/* Prints and frees. False if memory ran out, here or before. */
bool table_print(table *t);

#endif
