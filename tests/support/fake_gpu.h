/* fake_gpu.h: a simulated GPU, to test its users.
 *
 *     fake_gpu f;
 *     fake_gpu_init(&f);
 *     f.bodies = true;  f.fail_at = 7;  ...
 *     run with &f.base;
 *     fake_gpu_release(&f);          // aborts if memory or a stream is left
 *
 * By default a stream's work is done only when a wait forces it, so that a missing wait is detected. New
 * device memory holds garbage.
 *
 * An address of the device is none of the host: to use it there faults. A host's address, one of another
 * fake or a byte outside of an allocation aborts the test, and so do copies from or to memory that is not
 * pinned.
 */
#ifndef FSDPCK_TESTS_SUPPORT_FAKE_GPU_H
#define FSDPCK_TESTS_SUPPORT_FAKE_GPU_H

#include <pthread.h>
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
    FAKE_CRC,
    FAKE_MARK,
    FAKE_WAIT,
    FAKE_OTHER, /* of fake_gpu_handle; like is_done, whose number of calls depends on time, it
                 * never fails */
    FAKE_CALLS
} fake_call;

/* When a stream's work is done: at the last moment, at once, or by a thread of the stream after random
 * pauses. */
typedef enum fake_mode { FAKE_LAST, FAKE_EAGER, FAKE_THREADS } fake_mode;

/* A variable with the number of the mode of new fakes; unset: FAKE_LAST. */
#define FAKE_GPU_MODE "FAKE_GPU_MODE"

typedef struct fake_range {
    uint64_t begin, nbytes; /* addresses of the device, or of pinned memory */
    uint8_t *bytes;
} fake_range;

enum { FAKE_RANGES_MAX = 2048 };

typedef struct fake_ranges {
    fake_range list[FAKE_RANGES_MAX];
    unsigned count;
    uint64_t nbytes; /* total */
} fake_ranges;

typedef struct fake_gpu {
    gpu base;
    fake_mode mode;
    bool bodies; /* launches run gpu_body.h, otherwise separate code */
    bool wrong;  /* launches give wrong bytes */
    /* The fail_at-th call from 1 on fails, and all later calls for the same stream; 0: none. */
    uint64_t fail_at;
    /* This operation fails when it is done. The next wait finds it, and every later call of any stream
     * fails. */
    uint64_t late_fail_at;
    /* This copy flips a bit, and so do the next flips - 1 copies. */
    uint64_t flip_at, flips;
    uint64_t device_most, pinned_most; /* bytes that there are; 0: enough */
    bool blank;                        /* new memory is not touched: for many workers */
    uint64_t pauses;                   /* before so many operations */
    unsigned pause_us;
    void (*on_close)(struct fake_gpu *f); /* may be NULL */
    atomic_uint_fast64_t calls;           /* so far, of those that may fail */
    atomic_uint_fast64_t copies, operations;
    atomic_uint_fast64_t made[FAKE_CALLS];
    atomic_uint_fast64_t in_nbytes, out_nbytes; /* copied */
    atomic_uint_fast64_t live;                  /* memory and streams */
    atomic_uint_fast64_t device_nbytes;         /* total allocated */
    atomic_uint_fast64_t stack_nbytes;          /* the least of a thread that called; 0: none did */
    atomic_uint_fast64_t urgent_streams;
    atomic_uint_fast64_t convert_align; /* the least of sources that are converted; 0: none was */
    /* Its own. */
    unsigned id;          /* of this fake, in its process */
    atomic_bool is_lost;  /* an operation has failed */
    pthread_mutex_t lock; /* of the ranges */
    uint64_t next_address;
    fake_ranges device, pinned;
} fake_gpu;

/* Target of stream_handle: operations of a library that replaces NCCL, done in the stream's order. */
typedef struct fake_gpu_handle {
    /* `op` returns whether it is done, and is called again until then. */
    void (*enqueue)(struct fake_gpu_handle *h, bool (*op)(void *ctx), void *ctx);
    /* The bytes at an address of the device. */
    uint8_t *(*bytes_at)(struct fake_gpu_handle *h, uint64_t address, uint64_t nbytes);
} fake_gpu_handle;

void fake_gpu_init(fake_gpu *f);
void fake_gpu_release(fake_gpu *f);

/* A number for the device that is current in this thread, equal in all processes that share it; 0: none.
 * For libraries that the program loads. */
#define FAKE_GPU_CURRENT "fake_gpu_current"
typedef uint64_t (*fake_gpu_current_fn)(void);
__attribute__((visibility("default"))) uint64_t fake_gpu_current(void);

/* fake_gpu_memory.c */
void fake_memory_init(fake_gpu *f);
void fake_memory_release(fake_gpu *f);
/* NULL: no room. */
void *fake_pinned_new(fake_gpu *f, uint64_t nbytes);
void fake_pinned_free(fake_gpu *f, void *memory, uint64_t nbytes);
bool fake_is_pinned(fake_gpu *f, const void *memory, uint64_t nbytes);
/* 0: no room. */
gpu_address fake_device_new(fake_gpu *f, uint64_t nbytes);
void fake_device_free(fake_gpu *f, gpu_address memory);
uint8_t *fake_device_bytes(fake_gpu *f, gpu_address at, uint64_t nbytes);

/* fake_gpu_launch.c */
void fake_launch(fake_gpu *f, const gpu_batch *p);
void fake_crc(fake_gpu *f, gpu_address at, uint64_t nbytes, gpu_address crc);

#endif
