/* hosts.h: which ranks of a group share a host, by host name.
 *
 *     hosts h = {0};
 *     RETURN_IF(hosts_init(&h, g, err));
 *     h.of_rank[r] == h.mine                // whether rank r runs here
 *     if (hosts_is_leader(&h, rank)) ...        // one rank of each host
 *     hosts_release(&h);
 *
 * Hosts are numbered by their lowest ranks.
 */
#ifndef FSDPCK_GROUP_HOSTS_H
#define FSDPCK_GROUP_HOSTS_H

#include "group/group.h"

typedef struct hosts {
    unsigned ranks, count;
    unsigned mine;     /* of this rank */
    unsigned *of_rank; /* by rank: number of its host */
    unsigned *leaders; /* by host: its lowest rank */
} hosts;

fsdpck_status hosts_init(hosts *h, const group *g, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same from names by rank; `rank` is this one. */
fsdpck_status hosts_from_names(hosts *h, const char *const *names, unsigned ranks, unsigned rank,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
bool hosts_is_leader(const hosts *h, unsigned rank);
void hosts_release(hosts *h);

#endif
