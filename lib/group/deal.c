#include "group/deal.h"

#include <stdlib.h>
#include <string.h>

/* A rank may get this part more than its share, where that keeps bytes from travelling. */
#define SLACK_PART 16u

fsdpck_status deal_init(deal *d, unsigned size, const uint8_t *takes, uint64_t total,
                        uint64_t largest, fsdpck_error *err)
{
    unsigned takers = 0;
    *d = (deal){.size = size, .takes = takes};
    for (unsigned r = 0; r < size; r++)
        takers += takes == NULL || takes[r];
    const uint64_t each = total / (takers > 0 ? takers : 1);
    d->most = each + each / SLACK_PART + largest;
    d->load = calloc(size, sizeof *d->load);
    d->near_nbytes = calloc(size, sizeof *d->near_nbytes);
    return d->load != NULL && d->near_nbytes != NULL ? FSDPCK_OK
                                                     : error_set_nomem(err, size * sizeof *d->load);
}

void deal_release(deal *d)
{
    free(d->load);
    free(d->near_nbytes);
    *d = (deal){0};
}

void deal_near(deal *d, unsigned rank, uint64_t nbytes)
{
    d->near_nbytes[rank] += nbytes;
}

void deal_near_file(deal *d, const group_view *v, const char *path, uint64_t nbytes)
{
    uint32_t count;
    const uint32_t *ranks = group_view_holders(v, path, &count);
    for (uint32_t i = 0; i < count; i++)
        deal_near(d, ranks[i], nbytes);
}

unsigned deal_next(deal *d, uint64_t nbytes)
{
    unsigned best = d->size, least = d->size;
    for (unsigned r = 0; r < d->size; r++) {
        if (d->takes != NULL && !d->takes[r])
            continue;
        if (least == d->size || d->load[r] < d->load[least])
            least = r;
        if (d->near_nbytes[r] == 0 || d->load[r] + nbytes > d->most)
            continue;
        if (best == d->size || d->near_nbytes[r] > d->near_nbytes[best] ||
            (d->near_nbytes[r] == d->near_nbytes[best] && d->load[r] < d->load[best]))
            best = r;
    }
    const unsigned owner = best < d->size ? best : least < d->size ? least : 0;
    d->load[owner] += nbytes;
    memset(d->near_nbytes, 0, d->size * sizeof *d->near_nbytes);
    return owner;
}
