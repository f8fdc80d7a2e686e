#include "exec/gpu/rounds.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

uint64_t rounds_sum_at(uint64_t nbytes)
{
    return nbytes + (8 - nbytes % 8) % 8;
}

uint64_t rounds_message_nbytes(uint64_t nbytes)
{
    const uint64_t end = rounds_sum_at(nbytes) + sizeof(uint64_t);
    return end + (ROUNDS_ALIGN - end % ROUNDS_ALIGN) % ROUNDS_ALIGN;
}

uint64_t rounds_capacity(unsigned size, unsigned tiles_each, uint64_t tile_needs_nbytes)
{
    return tiles_each * rounds_message_nbytes(tile_needs_nbytes) +
           size * rounds_message_nbytes(ROUNDS_ALIGN);
}

fsdpck_status rounds_init(rounds *r, unsigned size, unsigned tiles_each, uint64_t capacity_nbytes,
                          rounds_next_fn next, void *ctx, fsdpck_error *err)
{
    *r = (rounds){.size = size,
                  .tiles_each = tiles_each,
                  .capacity_nbytes = capacity_nbytes,
                  .next = next,
                  .ctx = ctx};
    r->pending = calloc(size, sizeof *r->pending);
    r->nbytes_from = calloc(size, sizeof *r->nbytes_from);
    r->sent = calloc(size, sizeof *r->sent);
    r->received = calloc(size, sizeof *r->received);
    r->place = calloc(size, sizeof *r->place);
    if (r->pending == NULL || r->nbytes_from == NULL || r->sent == NULL || r->received == NULL ||
        r->place == NULL)
        return error_set_nomem(err, size * sizeof *r->pending);
    for (unsigned i = 0; i < size; i++)
        r->pending[i].needs = VEC_OF(round_need, NULL);
    return FSDPCK_OK;
}

void rounds_release(rounds *r)
{
    for (unsigned i = 0; r->pending != NULL && i < r->size; i++)
        vec_release(&r->pending[i].needs);
    free(r->pending);
    free(r->nbytes_from);
    free(r->sent);
    free(r->received);
    free(r->place);
    *r = (rounds){0};
}

void round_list_release(round_list *list)
{
    VEC_RELEASE_ALL(&list->tiles, &list->needs, &list->transfers);
}

/* The rank's next tile, unless one waits already. */
static fsdpck_status find_next(rounds *r, unsigned rank, fsdpck_error *err)
{
    rounds_pending *p = &r->pending[rank];
    if (p->there || p->done)
        return FSDPCK_OK;
    memset(r->nbytes_from, 0, r->size * sizeof *r->nbytes_from);
    RETURN_IF(r->next(r->ctx, rank, &p->range, r->nbytes_from, &p->there, err));
    p->done = !p->there;
    p->needs.count = 0;
    for (uint32_t from = 0; p->there && from < r->size; from++) {
        if (r->nbytes_from[from] == 0 || from == rank)
            continue;
        RETURN_IF(
            vec_add(&p->needs, &(round_need){.from = from, .nbytes = r->nbytes_from[from]}, err));
    }
    return FSDPCK_OK;
}

static bool has_room(const rounds *r, unsigned rank)
{
    const rounds_pending *p = &r->pending[rank];
    uint64_t received = r->received[rank];
    for (size_t i = 0; i < p->needs.count; i++) {
        const round_need *n = VEC_AT(&p->needs, const round_need, i);
        const uint64_t nbytes = rounds_message_nbytes(n->nbytes);
        received += nbytes;
        if (r->sent[n->from] + nbytes > r->capacity_nbytes || received > r->capacity_nbytes)
            return false;
    }
    return true;
}

static fsdpck_status add_tile(rounds *r, unsigned rank, round_list *list, fsdpck_error *err)
{
    rounds_pending *p = &r->pending[rank];
    round_tile *tile = vec_push(&list->tiles, err);
    if (tile == NULL)
        return FSDPCK_LIMIT;
    *tile = (round_tile){.rank = rank,
                         .need_count = (uint32_t)p->needs.count,
                         .first_need = list->needs.count,
                         .range = p->range};
    for (size_t i = 0; i < p->needs.count; i++) {
        round_need *n = vec_push(&list->needs, err);
        if (n == NULL)
            return FSDPCK_LIMIT;
        *n = *VEC_AT(&p->needs, const round_need, i);
        n->tile = (uint32_t)(list->tiles.count - 1);
        r->sent[n->from] += rounds_message_nbytes(n->nbytes);
        r->received[rank] += rounds_message_nbytes(n->nbytes);
    }
    p->there = false;
    return FSDPCK_OK;
}

/* Places of all messages of the round to a rank: those of one sender lie together. */
static fsdpck_status place_messages(rounds *r, unsigned rank, size_t first_need, round_list *list,
                                    fsdpck_error *err)
{
    uint64_t received = 0;
    memset(r->nbytes_from, 0, r->size * sizeof *r->nbytes_from);
    for (size_t i = first_need; i < list->needs.count; i++) {
        const round_need *n = VEC_AT(&list->needs, const round_need, i);
        r->nbytes_from[n->from] += rounds_message_nbytes(n->nbytes);
    }
    for (uint32_t from = 0; received < r->received[rank]; from++) {
        const uint64_t nbytes = r->nbytes_from[from];
        if (nbytes == 0)
            continue;
        r->place[from] = list->transfers.count;
        const round_transfer t = {.from = from,
                                  .to = rank,
                                  .nbytes = nbytes,
                                  .at_from = r->sent[from] - nbytes,
                                  .at_to = received};
        RETURN_IF(vec_add(&list->transfers, &t, err));
        received += nbytes;
    }
    for (size_t i = list->needs.count; i-- > first_need;) {
        round_need *n = VEC_AT(&list->needs, round_need, i);
        round_transfer *t = VEC_AT(&list->transfers, round_transfer, r->place[n->from]);
        t->data_nbytes += n->nbytes;
        r->nbytes_from[n->from] -= rounds_message_nbytes(n->nbytes);
        n->at_from = t->at_from + r->nbytes_from[n->from];
        n->at_to = t->at_to + r->nbytes_from[n->from];
    }
    return FSDPCK_OK;
}

fsdpck_status rounds_next(rounds *r, round_list *list, fsdpck_error *err)
{
    bool left = false;
    if (list->tiles.item_nbytes == 0)
        *list = (round_list){VEC_OF(round_tile, NULL), VEC_OF(round_need, NULL),
                             VEC_OF(round_transfer, NULL)};
    list->tiles.count = 0;
    list->needs.count = 0;
    list->transfers.count = 0;
    memset(r->sent, 0, r->size * sizeof *r->sent);
    memset(r->received, 0, r->size * sizeof *r->received);
    for (unsigned i = 0; i < r->size; i++) {
        const unsigned rank = (r->first + i) % r->size;
        const size_t first_need = list->needs.count;
        unsigned taken = 0;
        RETURN_IF(find_next(r, rank, err));
        for (; taken < r->tiles_each && r->pending[rank].there && has_room(r, rank); taken++) {
            RETURN_IF(add_tile(r, rank, list, err));
            RETURN_IF(find_next(r, rank, err));
        }
        RETURN_IF(place_messages(r, rank, first_need, list, err));
        left = left || r->pending[rank].there;
    }
    r->first = (r->first + 1) % r->size;
    if (list->tiles.count == 0 && left)
        return FAIL(err, INTERNAL, NONE,
                    "item needs more bytes of other ranks than the buffer holds");
    return FSDPCK_OK;
}
