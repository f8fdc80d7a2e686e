/* rounds.h: the order in which tiles are exchanged between ranks that send and receive at the same
 * time.
 *
 *     RETURN_IF(rounds_init(&r, size, tiles_each, capacity_nbytes, next, ctx, err));
 *     do {
 *         RETURN_IF(rounds_next(&r, &list, err));
 *         for each transfer of list.transfers: from -> to, all messages between two ranks
 *     } while (list.tiles.count > 0);
 *     round_list_release(&list);
 *     rounds_release(&r);
 *
 * A tile is filled by one rank, which may need one message from each rank that reads bytes for it.
 * A round contains some tiles with all of their messages: at most tiles_each tiles per rank, and at
 * most capacity_nbytes sent or received per rank. Equal inputs give equal rounds: each rank
 * computes them itself, and every send in a round matches a receive.
 *
 * Each tile is in one round; the tiles of a rank keep their order. Ranks begin rounds in turn.
 */
#ifndef FSDPCK_EXEC_GPU_ROUNDS_H
#define FSDPCK_EXEC_GPU_ROUNDS_H

#include "base/alloc.h"
#include "plan/segment.h"

/* Messages begin at multiples of this; each is followed by its checksum. Those from one rank to another
 * lie together, in the order of the needs, on both sides. */
#define ROUNDS_ALIGN 256u

typedef struct round_need {
    uint32_t tile; /* in the round's list */
    uint32_t from; /* rank */
    uint64_t nbytes;
    uint64_t at_from; /* offset in the data that the rank sends in this round */
    uint64_t at_to;   /* offset in the data that the tile's rank receives */
} round_need;

typedef struct round_tile {
    uint32_t rank;
    uint32_t need_count;
    uint64_t first_need; /* in needs; of ascending `from` */
    output_range range;
} round_tile;

/* All messages of a round from one rank to another. */
typedef struct round_transfer {
    uint32_t from, to; /* ranks */
    uint64_t nbytes;
    uint64_t data_nbytes;    /* of them: without checksums and the space between messages */
    uint64_t at_from, at_to; /* as those of a need */
} round_transfer;

typedef struct round_list {
    vec tiles;     /* round_tile */
    vec needs;     /* round_need */
    vec transfers; /* round_transfer: one for a pair of ranks */
} round_list;

/* The next tile of a rank; adds the bytes that it needs from each rank to the zeroed nbytes_from.
 * *there is false after the last one. */
typedef fsdpck_status (*rounds_next_fn)(void *ctx, unsigned rank, output_range *tile,
                                        uint64_t *nbytes_from, bool *there, fsdpck_error *err);

typedef struct rounds_pending {
    output_range range;
    vec needs; /* round_need without places */
    bool there, done;
} rounds_pending;

typedef struct rounds {
    unsigned size, tiles_each, first;
    uint64_t capacity_nbytes;
    rounds_next_fn next;
    void *ctx;
    rounds_pending *pending; /* by rank */
    uint64_t *nbytes_from;
    uint64_t *sent, *received; /* in the round, by rank */
    uint64_t *place;           /* number of the transfer in the list, by rank that sends it */
} rounds;

/* Size of a message with its checksum, up to the begin of the next one. */
uint64_t rounds_message_nbytes(uint64_t nbytes);
/* Offset of the checksum in a message. */
uint64_t rounds_sum_at(uint64_t nbytes);
/* The capacity that every tile fits into: the needs of one tile have at most this many bytes. */
uint64_t rounds_capacity(unsigned size, unsigned tiles_each, uint64_t tile_needs_nbytes);

fsdpck_status rounds_init(rounds *r, unsigned size, unsigned tiles_each, uint64_t capacity_nbytes,
                          rounds_next_fn next, void *ctx, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* INTERNAL if a single tile needs more than the capacity. */
fsdpck_status rounds_next(rounds *r, round_list *list, fsdpck_error *err) FSDPCK_MUST_CHECK;
void rounds_release(rounds *r);
void round_list_release(round_list *list);

#endif
