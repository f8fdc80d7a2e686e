/* nccl_exchange.h: bytes between the GPUs of different ranks, by NCCL.
 *
 *     RETURN_IF(nccl_load(NULL, &n, err));                   // DEVICE without the library
 *     rank 0: RETURN_IF(nccl_make_id(n, id, err));           // the group broadcasts it
 *     RETURN_IF(nccl_join(n, id, rank, size, &watch, &c, err));
 *     RETURN_IF(nccl_exchange(c, moves, count, stream, err));      // all of them at once
 *     RETURN_IF(nccl_wait(c, is_done, ctx, err));          // until all is done, or failed
 *     nccl_leave(&c);
 *     nccl_unload(n);
 *
 * The library has some 250 MB and is loaded at first use; none of its headers is needed. One rank
 * has one device, the current one of the calling thread. One thread at a time uses a communicator.
 *
 * Every wait ends: communicators do not block. They are polled until they are ready, have failed,
 * the watch requests a stop (CANCELLED), or no rank has gone on for too long. After any failure a
 * communicator is aborted, so that its kernels leave the device, and only nccl_leave may be called
 * for it.
 */
#ifndef FSDPCK_KERNELS_NCCL_EXCHANGE_H
#define FSDPCK_KERNELS_NCCL_EXCHANGE_H

#include "kernels/gpu.h"

typedef struct nccl nccl;
typedef struct nccl_comm nccl_comm;

#define NCCL_ID_NBYTES 128u

/* Polled during waits; borrowed for the life of the communicator. */
typedef struct nccl_watch {
    bool (*stop)(void *ctx); /* may be NULL */
    /* A number that changes while other ranks go on with work that this one waits for; may be NULL. */
    uint64_t (*activity)(void *ctx);
    void *ctx;
    unsigned timeout_seconds; /* of each wait, since the last change */
} nccl_watch;

/* One range of device memory sent to or received from a rank. Between two ranks the n-th send
 * matches the n-th receive in order and length. */
typedef struct nccl_transfer {
    gpu_address at;
    uint64_t nbytes;
    uint32_t peer;
    bool receive;
} nccl_transfer;

/* path NULL: libnccl.so.2 as the loader finds it. UNSUPPORTED: the version is too old. */
fsdpck_status nccl_load(const char *path, nccl **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
void nccl_unload(nccl *n);
/* 22809: 2.28.9. */
unsigned nccl_version(const nccl *n);

fsdpck_status nccl_make_id(nccl *n, uint8_t *id, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Called by all ranks; `id` has NCCL_ID_NBYTES. */
fsdpck_status nccl_join(nccl *n, const uint8_t *id, unsigned rank, unsigned size,
                        const nccl_watch *watch, nccl_comm **out,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Ends the communicator in order within the deadline, unless it was aborted. Sets *c to NULL. */
void nccl_leave(nccl_comm **c);
/* The same after a failure elsewhere, without waiting. */
void nccl_abort(nccl_comm **c);

/* Submitted to the stream (gpu_calls.stream_handle) in one group. */
fsdpck_status nccl_exchange(nccl_comm *c, const nccl_transfer *moves, size_t count, void *stream,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Reports a failure of submitted work; does not wait for it. */
fsdpck_status nccl_check(nccl_comm *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Polls nccl_check and `done` (of a stream, for example) in turn until one of them ends the wait.
 */
fsdpck_status nccl_wait(nccl_comm *c, bool (*done)(void *ctx), void *ctx,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
