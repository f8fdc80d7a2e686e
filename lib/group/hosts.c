#include "group/hosts.h"

#include <stdlib.h>
#include <string.h>

fsdpck_status hosts_from_names(hosts *h, const char *const *names, unsigned ranks, unsigned rank,
                               fsdpck_error *err)
{
    *h = (hosts){.ranks = ranks};
    h->of_rank = calloc(ranks, sizeof *h->of_rank);
    h->leaders = calloc(ranks, sizeof *h->leaders);
    if (h->of_rank == NULL || h->leaders == NULL) {
        hosts_release(h);
        return error_set_nomem(err, ranks * sizeof *h->of_rank);
    }
    for (unsigned r = 0; r < ranks; r++) {
        unsigned host = 0;
        while (host < h->count && strcmp(names[h->leaders[host]], names[r]) != 0)
            host++;
        if (host == h->count)
            h->leaders[h->count++] = r;
        h->of_rank[r] = host;
    }
    h->mine = h->of_rank[rank];
    return FSDPCK_OK;
}

fsdpck_status hosts_init(hosts *h, const group *g, fsdpck_error *err)
{
    const unsigned ranks = group_size(g);
    const char **names = calloc(ranks, sizeof *names);
    if (names == NULL)
        return error_set_nomem(err, ranks * sizeof *names);
    for (unsigned r = 0; r < ranks; r++)
        names[r] = group_host(g, r);
    const fsdpck_status st = hosts_from_names(h, names, ranks, group_rank(g), err);
    free((void *)names);
    return st;
}

bool hosts_is_leader(const hosts *h, unsigned rank)
{
    return h->leaders[h->of_rank[rank]] == rank;
}

void hosts_release(hosts *h)
{
    free(h->of_rank);
    free(h->leaders);
    *h = (hosts){0};
}
