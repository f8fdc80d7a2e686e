/* gpu_internal.h: state of the GPU engine, per run and per worker. */
#ifndef FSDPCK_EXEC_GPU_GPU_INTERNAL_H
#define FSDPCK_EXEC_GPU_GPU_INTERNAL_H

#include "exec/exec_internal.h"
#include "exec/gpu/gpu_worker.h"

struct engine_state {
    gpu_address exchange_memory; /* kept while GPU workers may use it */
    struct exchange *exchange;   /* NULL: bytes of other ranks come by MPI */
    int given_up;                /* atomic: the warning was given */
    uint8_t kinds[GPU_KINDS_NBYTES];
};

/* State of a tile with bytes that other ranks read (exchange.h). */
typedef struct tile_exchange {
    unsigned rank;              /* the rank that fills the tile */
    uint64_t sent;              /* up to where messages are made so far */
    const gpu_worker_sum *sums; /* of messages that are made */
    unsigned sum_count;
    /* Messages of the current tile; NULL: none received, or not to be used. */
    const struct exchange_received *recv_buffer;
    /* By rank: read position in its message, from the recv_buffer's begin. */
    uint64_t *received_at;
} tile_exchange;

struct engine_worker {
    gpu *pinned_by; /* the device that pinned the memory; NULL: allocated by engine_threads */
    uint8_t kinds[GPU_KINDS_NBYTES];
    gpu_worker *gpu_worker; /* NULL: it was given up; its staging is where the worker's is */
    tile_exchange tile_exchange;
};

/* Offset in the device's tile that corresponds to dst. */
static inline uint64_t gpu_span_at(const worker *w, const uint8_t *dst)
{
    return (uint64_t)(dst - w->memory);
}

#endif
