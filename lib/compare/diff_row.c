/* diff_row.c: one more row of a comparison. */
#include "compare/diff.h"

fsdpck_status diff_add_row(fsdpck_diff *d, const diff_row *row, fsdpck_error *err)
{
    return vec_add(&d->rows, row, err);
}
