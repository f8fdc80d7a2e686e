/* partition.h: which rank does which item of a plan and which row block of a column group: of the group that there is
 * (exec_assign_work), and of one that is only asked about (simulate.h). All ranks go through all items
 * in the same order, so that nobody need be told.
 *
 *     const partition_group g = {.size = 4};
 *     RETURN_IF(partition_items(x, &g, give, ctx, err));   // give(ctx, rank, item, err) for every item
 *     RETURN_IF(partition_row_blocks(x, &g, give, ctx, err));   // likewise
 *
 * Where all see the source, neighbours stay together, and each rank's bytes are those of the mean,
 * give or take the largest item, and the largest row block where there are column_groups. Where the source is on
 * disks of the ranks' own, items go by assignment.h: to who has most of their bytes, as long as nobody gets
 * a 16th more than the mean and an item. Bands do not: all their rows come from several files.
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
    const uint8_t *active;       /* by rank: whether it is given work; NULL: all are */
    const file_holders *holders; /* by file of the source; NULL: all see all */
} partition_group;

/* Who has each file of a source on disks of the ranks' own; none: it is no file of theirs. */
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
