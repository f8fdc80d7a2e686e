/* exchange_internal.h: shared by exchange.c and exchange_open.c. */
#ifndef FSDPCK_EXEC_GPU_EXCHANGE_INTERNAL_H
#define FSDPCK_EXEC_GPU_EXCHANGE_INTERNAL_H

#include "exec/gpu/exchange.h"
#include "exec/partition.h"
#include "group/remote_folder.h"
#include "kernels/nccl_exchange.h"

/* The previous, current and next round. */
#define ROUND_LISTS 3u
#define ITEM_NONE   UINT32_MAX

/* Position of a rank in its items. */
typedef struct tile_cursor {
    uint32_t item;
    bool begun;
    output_range whole, range, tile;
} tile_cursor;

struct exchange {
    struct exec *x;
    nccl *library;
    nccl_watch watch;
    nccl_comm *comm;
    gpu_stream *stream;
    gpu_address send_buffer[2], recv_buffer[2];
    uint64_t capacity_nbytes; /* of each */
    uint64_t tile_nbytes;     /* the minimum over all ranks */
    uint64_t needs_nbytes;    /* of a tile of this size, at most: a worker's memory holds them */
    unsigned tiles_each;
    file_holders *readers; /* by source file */
    uint32_t *next_item;   /* by item: the next one of the same rank */
    tile_cursor *cursors;  /* by rank */
    uint64_t *received_at; /* by worker, then by rank */
    segment_walk walk;
    rounds rounds;
    round_list lists[ROUND_LISTS];
    vec transfers; /* nccl_transfer */
    uint64_t travelled_nbytes, round_count;
};

/* After the sizes are known. */
fsdpck_status exchange_schedule(exchange *e, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
