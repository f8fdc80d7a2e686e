/* assignment.h: assigns jobs to the ranks of a group, near the disks with their files.
 *
 *     assignment d;
 *     RETURN_IF(assignment_init(&d, size, active, total, largest, err));
 *     for each job, in one order on all ranks:
 *         assignment_add_local(&d, rank, some);          // that many of its bytes are on this rank
 *         owner = assignment_next(&d, nbytes);
 *     assignment_release(&d);
 *
 * A job goes to the rank with most of its bytes, and among equals to the one with the least load.
 * If that rank already has much more load than others, the job goes to the rank with the least
 * load.
 */
#ifndef FSDPCK_GROUP_ASSIGNMENT_H
#define FSDPCK_GROUP_ASSIGNMENT_H

#include "group/remote_folder.h"

typedef struct assignment {
    unsigned size;
    const uint8_t *active; /* by rank: whether it gets jobs; NULL: all do. Borrowed */
    uint64_t *load;        /* by rank: bytes */
    uint64_t *local_nbytes;
    uint64_t most; /* load up to which a rank gets jobs by locality */
} assignment;

/* total: bytes of all jobs; largest: of one. */
fsdpck_status assignment_init(assignment *d, unsigned size, const uint8_t *active, uint64_t total,
                              uint64_t largest, fsdpck_error *err) FSDPCK_MUST_CHECK;
void assignment_add_local(assignment *d, unsigned rank, uint64_t nbytes);
/* The same for all ranks that have a file of the remote folder. */
void assignment_add_local_file(assignment *d, const remote_folder *v, const char *path,
                               uint64_t nbytes);
unsigned assignment_next(assignment *d, uint64_t nbytes);
void assignment_release(assignment *d);

#endif
