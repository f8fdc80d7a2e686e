/* partition.h: divides the items of a plan and the row blocks of column groups among ranks: of the
 * actual group (exec_assign_work), or of a simulated one (simulate.h). All ranks process all items
 * in the same order, so no communication is needed.
 *
 *     const partition_group g = {.size = 4};
 *     RETURN_IF(partition_items(x, &g, give, ctx, err));   // give(ctx, rank, item, err) for every item
 *     RETURN_IF(partition_row_blocks(x, &g, give, ctx, err));   // likewise
 *
 * With a shared source, neighboring items stay together. Each rank's bytes differ from the mean by
 * at most the largest item, and the largest row block if there are column groups. With a source on
 * the ranks' own disks, assignment.h assigns items: to the rank with most of their bytes, unless it
 * has more than the mean plus a 16th and one item. Row blocks are not assigned so, as their rows
 * come from several files.
 */
#ifndef FSDPCK_EXEC_PARTITION_H
#define FSDPCK_EXEC_PARTITION_H

#include "exec/exec.h"

/* The ranks that have a file on their disks. */
typedef struct file_holders {
    const uint32_t *ranks;
    uint32_t count;
} file_holders;

/* All borrowed. */
typedef struct partition_group {
    unsigned size;
    const uint8_t *active;       /* by rank: whether it gets work; NULL: all do */
    const file_holders *holders; /* by file of the source; NULL: all ranks have all files */
} partition_group;

/* The ranks that have each file of a source on their own disks; no entry: not such a file. */
void partition_find_holders(const struct exec *x, file_holders *by_file);

typedef fsdpck_status (*partition_assign_fn)(void *ctx, unsigned rank, uint64_t item,
                                             fsdpck_error *err);

fsdpck_status partition_items(const struct exec *x, const partition_group *g,
                              partition_assign_fn give, void *ctx,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status partition_row_blocks(const struct exec *x, const partition_group *g,
                                   partition_assign_fn give, void *ctx,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
