/* gpu_internal.h: what the GPU's engine has of a run and of each worker. */
#ifndef FSDPCK_EXEC_GPU_GPU_INTERNAL_H
#define FSDPCK_EXEC_GPU_GPU_INTERNAL_H

#include "exec/exec_internal.h"
#include "exec/gpu/gpu_worker.h"

struct engine_state {
    gpu_address exchange_memory; /* as long as lanes may have something to do with it */
    struct exchange *exchange;   /* NULL: bytes of other ranks are asked for by MPI */
    int given_up;                /* atomic: the warning was given */
};

/* Of a tile some of whose bytes are read by other ranks (exchange.h). */
typedef struct tile_exchange {
    unsigned rank; /* whose tile it is */
    uint64_t sent; /* bytes of the message so far */
    /* Of the tile worked on: its messages; NULL: none came, or they are not to be used. */
    const struct exchange_received *recv_buffer;
    /* By rank: where its message goes on, from the recv_buffer's begin. */
    uint64_t *received_at;
} tile_exchange;

struct engine_worker {
    gpu *pinned_by;         /* whose the memory is; NULL: engine_threads' */
    gpu_worker *gpu_worker; /* NULL: it was given up; its staging is where the worker's is */
    tile_exchange tile_exchange;
};

/* Where the device's tile has what dst points to. */
static inline uint64_t gpu_span_at(const worker *w, const uint8_t *dst)
{
    return (uint64_t)(dst - w->memory);
}

#endif
