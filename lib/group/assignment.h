/* assignment.h: who of a group does which job, where their files lie on the disks of some.
 *
 *     assignment d;
 *     RETURN_IF(assignment_init(&d, size, active, total, largest, err));
 *     for each job, in one order on all ranks:
 *         assignment_add_local(&d, rank, some);          // so many of its bytes that rank has
 *         owner = assignment_next(&d, nbytes);
 *     assignment_release(&d);
 *
 * A job goes to the rank that has most of its bytes, the one with least to do of those that have as
 * much, as long as no rank gets much more than the others: then to the one with least to do.
 */
#ifndef FSDPCK_GROUP_ASSIGNMENT_H
#define FSDPCK_GROUP_ASSIGNMENT_H

#include "group/remote_folder.h"

typedef struct assignment {
    unsigned size;
    const uint8_t *active; /* by rank: whether it is given jobs; NULL: all are. Borrowed */
    uint64_t *load;        /* by rank: bytes */
    uint64_t *local_nbytes;
    uint64_t most; /* load that nobody exceeds because of what is near */
} assignment;

/* total: bytes of all jobs; largest: of one. */
fsdpck_status assignment_init(assignment *d, unsigned size, const uint8_t *active, uint64_t total,
                              uint64_t largest, fsdpck_error *err) FSDPCK_MUST_CHECK;
void assignment_add_local(assignment *d, unsigned rank, uint64_t nbytes);
/* The same for all ranks that have a file of the view. */
void assignment_add_local_file(assignment *d, const remote_folder *v, const char *path,
                               uint64_t nbytes);
unsigned assignment_next(assignment *d, uint64_t nbytes);
void assignment_release(assignment *d);

#endif
