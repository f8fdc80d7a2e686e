/* Sends the bytes of each rank to all. */
#include <stdlib.h>
#include <string.h>

#include "group/group.h"

/* Room for the longest, and each length. */
static fsdpck_status make_room(group *g, uint64_t nbytes, uint64_t *sizes, uint8_t **room,
                               fsdpck_error *err)
{
    uint64_t most = 1;
    sizes[group_rank(g)] = nbytes;
    RETURN_IF(group_sum(g, sizes, group_size(g), err));
    for (unsigned r = 0; r < group_size(g); r++)
        most = sizes[r] > most ? sizes[r] : most;
    *room = malloc(most);
    const fsdpck_status st = *room != NULL ? FSDPCK_OK : error_set_nomem(err, most);
    return group_agree(g, st, err);
}

static fsdpck_status broadcast_all(group *g, const void *bytes, const uint64_t *sizes,
                                   uint8_t *room, group_receive_fn take, void *ctx,
                                   fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_OK;
    for (unsigned r = 0; r < group_size(g); r++) {
        if (sizes[r] == 0)
            continue;
        if (r == group_rank(g))
            memcpy(room, bytes, sizes[r]);
        RETURN_IF(group_broadcast(g, r, room, sizes[r], err));
        if (st == FSDPCK_OK)
            st = take(ctx, r, room, sizes[r], err);
    }
    return group_agree(g, st, err);
}

fsdpck_status group_all_gather(group *g, fsdpck_status st, const void *bytes, uint64_t nbytes,
                               group_receive_fn take, void *ctx, fsdpck_error *err)
{
    if (g == NULL)
        return st != FSDPCK_OK || nbytes == 0 ? st : take(ctx, 0, bytes, nbytes, err);
    uint64_t *sizes = st == FSDPCK_OK ? calloc(group_size(g), sizeof *sizes) : NULL;
    uint8_t *room = NULL;
    if (st == FSDPCK_OK && sizes == NULL)
        st = error_set_nomem(err, group_size(g) * sizeof *sizes);
    st = group_agree(g, st, err);
    if (st == FSDPCK_OK)
        st = make_room(g, nbytes, sizes, &room, err);
    if (st == FSDPCK_OK)
        st = broadcast_all(g, bytes, sizes, room, take, ctx, err);
    free(sizes);
    free(room);
    return st;
}
