#include "table.h"

#include <libsmartcols/libsmartcols.h>
#include <stdlib.h>

struct table {
    struct libscols_table *rows;
    size_t columns;
    bool failed;
};

table *table_new(const table_column *columns, size_t count)
{
    table *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->rows = scols_new_table();
    t->columns = count;
    t->failed = t->rows == NULL;
    for (size_t i = 0; !t->failed && i < count; i++)
        t->failed = scols_table_new_column(t->rows, columns[i].head, 0,
                                           columns[i].right ? SCOLS_FL_RIGHT : 0) == NULL;
    return t;
}

void table_add(table *t, const char *const *cells)
{
    if (t == NULL || t->failed)
        return;
    struct libscols_line *line = scols_table_new_line(t->rows, NULL);
    t->failed = line == NULL;
    for (size_t i = 0; !t->failed && i < t->columns; i++)
        t->failed = scols_line_set_data(line, i, cells[i]) != 0;
}

bool table_print(table *t)
{
    if (t == NULL)
        return false;
    /* Names are escaped already, once. */
    const bool ok = !t->failed && scols_table_enable_nowrap(t->rows, 1) == 0 &&
                    scols_table_enable_noencoding(t->rows, 1) == 0 &&
                    scols_table_set_termforce(t->rows, SCOLS_TERMFORCE_NEVER) == 0 &&
                    scols_print_table(t->rows) == 0;
    scols_unref_table(t->rows);
    free(t);
    return ok;
}
