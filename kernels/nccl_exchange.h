/* nccl_exchange.h: bytes between the GPUs of different ranks, by NCCL.
 *
 *     RETURN_IF(nccl_load(NULL, &n, err));                   // DEVICE where the library is not there
 *     rank 0: RETURN_IF(nccl_make_id(n, id, err));           // the group broadcasts it
 *     RETURN_IF(nccl_join(n, id, rank, size, &watch, &c, err));
 *     RETURN_IF(nccl_exchange(c, moves, count, stream, err));      // all of them at once
 *     RETURN_IF(nccl_wait(c, is_done, ctx, err));          // until all of it is done, or failed
 *     nccl_leave(&c);
 *     nccl_unload(n);
 *
 * The library is some 250 MB and is loaded when it is first needed; no header of it is. One rank has
 * one device, which is current in the calling thread. A communicator is used by one thread at a time.
 *
 * No wait is without an end: communicators do not block, and are asked until they are ready, have
 * failed, the watch says stop (CANCELLED), or the deadline has passed. After any failure a communicator
 * is aborted, so that its kernels leave the device, and only nccl_leave may be called for it.
 */
#ifndef FSDPCK_KERNELS_NCCL_EXCHANGE_H
#define FSDPCK_KERNELS_NCCL_EXCHANGE_H

#include "kernels/gpu.h"

typedef struct nccl nccl;
typedef struct nccl_comm nccl_comm;

#define NCCL_ID_NBYTES 128u

/* Asked while others are waited for; borrowed as long as the communicator lives. */
typedef struct nccl_watch {
    bool (*stop)(void *ctx); /* may be NULL */
    void *ctx;
    unsigned timeout_seconds; /* of each wait */
} nccl_watch;

/* One piece of device memory that goes to or comes from a rank. Between two ranks the n-th sent is the
 * n-th received, and as long. */
typedef struct nccl_transfer {
    gpu_address at;
    uint64_t nbytes;
    uint32_t peer;
    bool receive;
} nccl_transfer;

/* path NULL: libnccl.so.2 as the loader finds it. UNSUPPORTED: a version too old. */
fsdpck_status nccl_load(const char *path, nccl **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
void nccl_unload(nccl *n);
/* 22809: 2.28.9. */
unsigned nccl_version(const nccl *n);

fsdpck_status nccl_make_id(nccl *n, uint8_t *id, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* By all ranks; `id` has NCCL_ID_NBYTES. */
fsdpck_status nccl_join(nccl *n, const uint8_t *id, unsigned rank, unsigned size,
                        const nccl_watch *watch, nccl_comm **out,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Where it was not aborted it is ended in order, within the deadline. *c is NULL then. */
void nccl_leave(nccl_comm **c);
/* The same after a failure elsewhere: nothing is waited for. */
void nccl_abort(nccl_comm **c);

/* Given to the stream (gpu_calls.stream_handle) in one group. */
fsdpck_status nccl_exchange(nccl_comm *c, const nccl_transfer *moves, size_t count, void *stream,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* nbytes_each of every rank at `from` to `to` of all, in the order of ranks: where all want the same
 * tile. */
fsdpck_status nccl_all_gather(nccl_comm *c, gpu_address from, gpu_address to, uint64_t nbytes_each,
                              void *stream, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether what was given failed meanwhile; does not wait for it. */
fsdpck_status nccl_check(nccl_comm *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Asks nccl_check and `done` (of a stream, say) in turn until there is an end. */
fsdpck_status nccl_wait(nccl_comm *c, bool (*done)(void *ctx), void *ctx,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
