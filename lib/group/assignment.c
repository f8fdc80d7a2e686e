#include "group/assignment.h"

#include <stdlib.h>
#include <string.h>

/* A rank may get this part more than its share to avoid transfers. */
#define SLACK_PART 16u

fsdpck_status assignment_init(assignment *d, unsigned size, const uint8_t *active, uint64_t total,
                              uint64_t largest, fsdpck_error *err)
{
    unsigned active_count = 0;
    *d = (assignment){.size = size, .active = active};
    for (unsigned r = 0; r < size; r++)
        active_count += active == NULL || active[r];
    const uint64_t each = total / (active_count > 0 ? active_count : 1);
    d->most = each + each / SLACK_PART + largest;
    d->load = calloc(size, sizeof *d->load);
    d->local_nbytes = calloc(size, sizeof *d->local_nbytes);
    return d->load != NULL && d->local_nbytes != NULL
               ? FSDPCK_OK
               : error_set_nomem(err, size * sizeof *d->load);
}

void assignment_release(assignment *d)
{
    free(d->load);
    free(d->local_nbytes);
    *d = (assignment){0};
}

void assignment_add_local(assignment *d, unsigned rank, uint64_t nbytes)
{
    d->local_nbytes[rank] += nbytes;
}

void assignment_add_local_file(assignment *d, const remote_folder *v, const char *path,
                               uint64_t nbytes)
{
    uint32_t count;
    const uint32_t *ranks = remote_folder_holders(v, path, &count);
    for (uint32_t i = 0; i < count; i++)
        assignment_add_local(d, ranks[i], nbytes);
}

unsigned assignment_next(assignment *d, uint64_t nbytes)
{
    unsigned best = d->size, least = d->size;
    for (unsigned r = 0; r < d->size; r++) {
        if (d->active != NULL && !d->active[r])
            continue;
        if (least == d->size || d->load[r] < d->load[least])
            least = r;
        if (d->local_nbytes[r] == 0 || d->load[r] + nbytes > d->most)
            continue;
        if (best == d->size || d->local_nbytes[r] > d->local_nbytes[best] ||
            (d->local_nbytes[r] == d->local_nbytes[best] && d->load[r] < d->load[best]))
            best = r;
    }
    const unsigned owner = best < d->size ? best : least < d->size ? least : 0;
    d->load[owner] += nbytes;
    memset(d->local_nbytes, 0, d->size * sizeof *d->local_nbytes);
    return owner;
}
