/* gpu_state.h: what the GPU's engine has of a run and of each worker. */
#ifndef FSDPCK_EXEC_GPU_GPU_STATE_H
#define FSDPCK_EXEC_GPU_GPU_STATE_H

#include "exec/exec_state.h"
#include "exec/gpu/engine_gpu.h"

struct engine_state {
    gpu_address exchange_memory; /* as long as lanes may have something to do with it */
    struct exchange *exchange;   /* NULL: bytes of other ranks are asked for by MPI */
    int given_up;                /* atomic: the warning was given */
};

/* Of a tile some of whose bytes are read by other ranks (exchange.h). */
typedef struct travel {
    unsigned rank; /* whose tile it is */
    uint64_t sent; /* bytes of the message so far */
    /* Of the tile worked on: its messages; NULL: none came, or they are not to be used. */
    const struct exchange_inbox *inbox;
    /* By rank: where its message goes on, from the inbox's begin. */
    uint64_t *taken_at;
} travel;

struct engine_worker {
    gpu *pinned_by; /* whose the memory is; NULL: engine_threads' */
    gpu_lane *lane; /* NULL: it was given up; its staging is where the worker's is */
    travel travel;
};

/* Where the device's tile has what dst points to. */
static inline uint64_t gpu_span_at(const worker *w, const uint8_t *dst)
{
    return (uint64_t)(dst - w->memory);
}

#endif
