/* gpu_fake.h: a GPU that is none, to test what uses one.
 *
 *     gpu_fake f;
 *     gpu_fake_init(&f);
 *     f.bodies = true;  f.fail_at = 7;  ...
 *     run with &f.base;
 *     gpu_fake_release(&f);          // aborts where memory or a stream is left
 *
 * What a stream is given is done no earlier than a wait makes it, so that a wait that is missing
 * shows. Fresh device memory holds rubbish.
 */
#ifndef FSDPCK_TESTS_GPU_FAKE_H
#define FSDPCK_TESTS_GPU_FAKE_H

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
    FAKE_OTHER, /* of gpu_fake_handle; like is_done, whose number depends on time, it never fails */
    FAKE_CALLS
} fake_call;

typedef struct gpu_fake {
    gpu base;
    bool bodies; /* launches run gpu_body.h, else code of their own */
    bool wrong;  /* launches give wrong bytes */
    /* The fail_at-th call from 1 on fails, and all after it for the same stream; 0: none. */
    uint64_t fail_at;
    /* This copy changes a bit, and the next flips - 1 ones. */
    uint64_t flip_at, flips;
    void (*on_close)(struct gpu_fake *f); /* may be NULL */
    atomic_uint_fast64_t calls;           /* so far, of those that may fail */
    atomic_uint_fast64_t copies;
    atomic_uint_fast64_t made[FAKE_CALLS];
    atomic_uint_fast64_t live;          /* memory and streams */
    atomic_uint_fast64_t device_nbytes; /* all that was taken */
} gpu_fake;

/* Where stream_handle points: something of a library in place of NCCL, done in the stream's order. `op`
 * says whether it is done, and is asked again until it is. */
typedef struct gpu_fake_handle {
    void (*enqueue)(struct gpu_fake_handle *h, bool (*op)(void *ctx), void *ctx);
} gpu_fake_handle;

void gpu_fake_init(gpu_fake *f);
void gpu_fake_release(gpu_fake *f);

#endif
