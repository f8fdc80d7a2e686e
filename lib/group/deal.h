/* deal.h: who of a group does which job, where their files lie on the disks of some.
 *
 *     deal d;
 *     RETURN_IF(deal_init(&d, size, takes, total, largest, err));
 *     for each job, in one order on all ranks:
 *         deal_near(&d, rank, some);          // so many of its bytes that rank has
 *         owner = deal_next(&d, nbytes);
 *     deal_release(&d);
 *
 * A job goes to the rank that has most of its bytes, the one with least to do of those that have as
 * much, as long as no rank gets much more than the others: then to the one with least to do.
 */
#ifndef FSDPCK_GROUP_DEAL_H
#define FSDPCK_GROUP_DEAL_H

#include "group/remote_folder.h"

typedef struct deal {
    unsigned size;
    const uint8_t *takes; /* by rank: whether it is given jobs; NULL: all are. Borrowed */
    uint64_t *load;       /* by rank: bytes */
    uint64_t *near_nbytes;
    uint64_t most; /* load that nobody exceeds because of what is near */
} deal;

/* total: bytes of all jobs; largest: of one. */
fsdpck_status deal_init(deal *d, unsigned size, const uint8_t *takes, uint64_t total,
                        uint64_t largest, fsdpck_error *err) FSDPCK_MUST_CHECK;
void deal_near(deal *d, unsigned rank, uint64_t nbytes);
/* The same for all ranks that have a file of the view. */
void deal_near_file(deal *d, const group_view *v, const char *path, uint64_t nbytes);
unsigned deal_next(deal *d, uint64_t nbytes);
void deal_release(deal *d);

#endif
