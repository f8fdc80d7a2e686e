/* Sends the bytes of each rank to all. */
#include <stdlib.h>
#include <string.h>

#include "group/group_internal.h"

typedef struct gathering {
    uint8_t *first;  /* how many bytes this rank has, and the bytes if they fit */
    uint64_t *sizes; /* by rank */
    uint64_t most;
    uint8_t *room; /* for the longest */
} gathering;

static fsdpck_status make_first(const group *g, gathering *a, const void *bytes, uint64_t nbytes,
                                fsdpck_error *err)
{
    a->first = calloc(1, g->inline_nbytes);
    a->sizes = calloc(g->size, sizeof *a->sizes);
    if (a->first == NULL || a->sizes == NULL)
        return error_set_nomem(err, g->inline_nbytes + g->size * sizeof *a->sizes);
    memcpy(a->first, &nbytes, sizeof nbytes);
    if (nbytes > 0 && nbytes <= g->inline_nbytes - sizeof nbytes)
        memcpy(a->first + sizeof nbytes, bytes, nbytes);
    return FSDPCK_OK;
}

static fsdpck_status take_first(group *g, const gathering *a, group_receive_fn take, void *ctx,
                                fsdpck_error *err)
{
    for (unsigned r = 0; r < g->size; r++)
        if (a->sizes[r] > 0)
            RETURN_IF(take(ctx, r, group_gathered(g, r) + sizeof(uint64_t), a->sizes[r], err));
    return FSDPCK_OK;
}

static fsdpck_status broadcast_all(group *g, gathering *a, group_failure how, const void *bytes,
                                   group_receive_fn take, void *ctx, fsdpck_error *err)
{
    fsdpck_status st;
    a->room = malloc(a->most);
    st = a->room != NULL ? FSDPCK_OK : error_set_nomem(err, a->most);
    RETURN_IF(group_gather_inline(g, st, how, NULL, 0, err));
    for (unsigned r = 0; r < g->size; r++) {
        if (a->sizes[r] == 0)
            continue;
        if (r == g->rank)
            memcpy(a->room, bytes, a->sizes[r]);
        RETURN_IF(group_broadcast(g, r, a->room, a->sizes[r], err));
        if (st == FSDPCK_OK)
            st = take(ctx, r, a->room, a->sizes[r], err);
    }
    return st;
}

static fsdpck_status gather_all(group *g, gathering *a, fsdpck_status st, group_failure how,
                                const void *bytes, group_receive_fn take, void *ctx,
                                fsdpck_error *err)
{
    RETURN_IF(group_gather_inline(g, st, how, a->first, g->inline_nbytes, err));
    for (unsigned r = 0; r < g->size; r++) {
        memcpy(&a->sizes[r], group_gathered(g, r), sizeof a->sizes[r]);
        a->most = a->sizes[r] > a->most ? a->sizes[r] : a->most;
    }
    if (a->most > g->inline_nbytes - sizeof a->most)
        return broadcast_all(g, a, how, bytes, take, ctx, err);
    return take_first(g, a, take, ctx, err);
}

fsdpck_status group_all_gather_part(group *g, fsdpck_status st, group_failure how,
                                    const void *bytes, uint64_t nbytes, group_receive_fn take,
                                    void *ctx, fsdpck_error *err)
{
    gathering a = {0};
    if (g == NULL)
        return st != FSDPCK_OK || nbytes == 0 ? st : take(ctx, 0, bytes, nbytes, err);
    if (st == FSDPCK_OK)
        st = make_first(g, &a, bytes, nbytes, err);
    st = gather_all(g, &a, st, how, bytes, take, ctx, err);
    free(a.first);
    free(a.sizes);
    free(a.room);
    return st;
}

fsdpck_status group_all_gather(group *g, fsdpck_status st, group_failure how, const void *bytes,
                               uint64_t nbytes, group_receive_fn take, void *ctx, fsdpck_error *err)
{
    st = group_all_gather_part(g, st, how, bytes, nbytes, take, ctx, err);
    return g == NULL ? st : group_gather_inline(g, st, how, NULL, 0, err);
}
