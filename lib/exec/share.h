/* share.h: which rank does which item of a plan and which band of a bundle: of the group that there is
 * (exec_share_work), and of one that is only asked about (simulate.h). All ranks go through all items
 * in the same order, so that nobody need be told.
 *
 *     const share_group g = {.size = 4};
 *     RETURN_IF(share_items(x, &g, give, ctx, err));   // give(ctx, rank, item, err) for every item
 *     RETURN_IF(share_bands(x, &g, give, ctx, err));   // likewise
 *
 * Where all see the source, neighbours stay together, and each rank's bytes are those of the mean,
 * give or take the largest item, and the largest band where there are bundles. Where the source is on
 * disks of the ranks' own, items go by deal.h: to who has most of their bytes, as long as nobody gets
 * a 16th more than the mean and an item. Bands do not: all their rows come from several files.
 */
#ifndef FSDPCK_EXEC_SHARE_H
#define FSDPCK_EXEC_SHARE_H

#include "exec/exec.h"

/* The ranks that have a file on their disks. */
typedef struct share_holders {
    const uint32_t *ranks;
    uint32_t count;
} share_holders;

/* All borrowed. */
typedef struct share_group {
    unsigned size;
    const uint8_t *takes;         /* by rank: whether it is given work; NULL: all are */
    const share_holders *holders; /* by file of the source; NULL: all see all */
} share_group;

/* Who has each file of a source on disks of the ranks' own; none: it is no file of theirs. */
void share_find_holders(const struct exec *x, share_holders *by_file);

typedef fsdpck_status (*share_give_fn)(void *ctx, unsigned rank, uint64_t item, fsdpck_error *err);

fsdpck_status share_items(const struct exec *x, const share_group *g, share_give_fn give, void *ctx,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status share_bands(const struct exec *x, const share_group *g, share_give_fn give, void *ctx,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
