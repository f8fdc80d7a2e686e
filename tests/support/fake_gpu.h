/* fake_gpu.h: a simulated GPU, to test its users.
 *
 *     fake_gpu f;
 *     fake_gpu_init(&f);
 *     f.bodies = true;  f.fail_at = 7;  ...
 *     run with &f.base;
 *     fake_gpu_release(&f);          // aborts if memory or a stream is left
 *
 * A stream's work is done only when a wait forces it, so that a missing wait is detected. New
 * device memory holds garbage.
 */
#ifndef FSDPCK_TESTS_SUPPORT_FAKE_GPU_H
#define FSDPCK_TESTS_SUPPORT_FAKE_GPU_H

#include <stdatomic.h>

#include "kernels/gpu.h"

typedef enum fake_call {
    FAKE_HOST_NEW,
    FAKE_DEVICE_NEW,
    FAKE_STREAM_NEW,
    FAKE_COPY_IN,
    FAKE_COPY_OUT,
    FAKE_ZERO,
    FAKE_PLACE,
    FAKE_SUM,
    FAKE_MARK,
    FAKE_WAIT,
    FAKE_OTHER, /* of fake_gpu_handle; like is_done, whose number of calls depends on time, it
                 * never fails */
    FAKE_CALLS
} fake_call;

typedef struct fake_gpu {
    gpu base;
    bool bodies; /* launches run gpu_body.h, otherwise separate code */
    bool wrong;  /* launches give wrong bytes */
    /* The fail_at-th call from 1 on fails, and all later calls for the same stream; 0: none. */
    uint64_t fail_at;
    /* This copy flips a bit, and so do the next flips - 1 copies. */
    uint64_t flip_at, flips;
    void (*on_close)(struct fake_gpu *f); /* may be NULL */
    atomic_uint_fast64_t calls;           /* so far, of those that may fail */
    atomic_uint_fast64_t copies;
    atomic_uint_fast64_t made[FAKE_CALLS];
    atomic_uint_fast64_t live;          /* memory and streams */
    atomic_uint_fast64_t device_nbytes; /* total allocated */
} fake_gpu;

/* Target of stream_handle: an operation of a library that replaces NCCL, done in the stream's
 * order. `op` returns whether it is done, and is called again until then. */
typedef struct fake_gpu_handle {
    void (*enqueue)(struct fake_gpu_handle *h, bool (*op)(void *ctx), void *ctx);
} fake_gpu_handle;

void fake_gpu_init(fake_gpu *f);
void fake_gpu_release(fake_gpu *f);

#endif
