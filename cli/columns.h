/* columns.h: indented tables like those of table.h. One object prints many tables in turn.
 *
 *     static const table_column heads[] = {{"NAME", false}, {"BYTES", true}};
 *     columns *rows = columns_new();                             // NULL is fine for the rest
 *     columns_begin(rows, heads, 2);
 *     columns_add(rows, (const char *const[]){name, nbytes});
 *     if (!columns_print(rows)) no memory;                       // and is empty again
 *     columns_free(rows);
 */
#ifndef FSDPCK_CLI_COLUMNS_H
#define FSDPCK_CLI_COLUMNS_H

#include "table.h"

#define COLUMNS_MAX 12u

typedef struct table columns;

columns *columns_new(void);
void columns_free(columns *c);
/* heads are borrowed; at most COLUMNS_MAX. */
void columns_begin(columns *c, const table_column *heads, size_t count);
/* One text per column, copied; names from files must be escaped. */
void columns_add(columns *c, const char *const *cells);
size_t columns_count(const columns *c); /* of rows */
bool columns_print(columns *c);

#endif
