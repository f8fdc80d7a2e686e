/* diff_row.c: one more row of a comparison. */
#include "compare/diff.h"

fsdpck_status diff_add_row(fsdpck_diff *d, const diff_row *row, fsdpck_error *err)
{
    diff_row *slot = vec_push(&d->rows, err);
    if (slot == NULL)
        return FSDPCK_LIMIT;
    *slot = *row;
    return FSDPCK_OK;
}
