/* gpu.h: the interface to a GPU; bytes between GPUs are in nccl_exchange.h. It is plain C, without
 * headers of a vendor; the code below it is independent of tensors and files.
 *
 *     RETURN_IF(gpu_open(local_rank, &g, err));              // DEVICE if none is usable
 *     RETURN_IF(g->calls->host_new(g, nbytes, &pinned, err));
 *     RETURN_IF(g->calls->device_new(g, nbytes, &device, err));
 *     RETURN_IF(g->calls->stream_new(g, false, &s, err));
 *     RETURN_IF(g->calls->copy_in(s, device, pinned, nbytes, err));
 *     RETURN_IF(g->calls->place(s, &what, err));             // many boxes, one launch
 *     RETURN_IF(g->calls->copy_out(s, pinned, device, nbytes, err));
 *     RETURN_IF(g->calls->mark(s, 0, err));
 *     RETURN_IF(g->calls->wait(s, 0, err));                  // pinned memory may be read now
 *     g->calls->stream_free(s);  ...  g->calls->close(g);
 *
 * A stream executes its work later, in order. Memory used by that work must not change until a
 * later mark has been waited for. All calls may be made from any thread; one thread at a time uses
 * a stream. The calling thread's current device is the same afterwards. Failures are DEVICE, with the driver's message. After a failure only the free functions and
 * close may be called for the stream; they still work.
 *
 * The calls are a table of functions so that tests can replace the device.
 */
#ifndef FSDPCK_KERNELS_GPU_H
#define FSDPCK_KERNELS_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fsdpck_status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpu gpu;
typedef struct gpu_stream gpu_stream;

/* An address in device memory; 0 is none. Arithmetic is allowed. Allocations begin at multiples of
 * 256. */
typedef uint64_t gpu_address;

/* Numeric types that can be cast. All others are bytes. */
typedef enum gpu_dtype {
    GPU_BYTES = 0,
    GPU_FLOAT16,
    GPU_BFLOAT16,
    GPU_FLOAT32,
    GPU_FLOAT64,
    GPU_FLOAT8_E4M3FN,
    GPU_FLOAT8_E5M2,
    GPU_FLOAT8_E4M3FNUZ,
    GPU_FLOAT8_E5M2FNUZ,
    GPU_FLOAT8_E8M0FNU
} gpu_dtype;

/* How a box is processed; chosen by gpu_box_prepare. */
enum {
    GPU_WAY_ROWS = 1,  /* the last dim is a run of bytes */
    GPU_WAY_UNITS,     /* of 1 << dst_log2 bytes */
    GPU_WAY_LINES,     /* the last dim is a short run of bytes; units are lines that it may touch */
    GPU_WAY_CHANGE,    /* elements whose bits change: swapped, inverted, negated */
    GPU_WAY_CAST,      /* elements, perhaps changed before */
    GPU_WAY_CAST_ROWS, /* the last dim is a run of elements */
    GPU_WAYS
};

/* A dim of a box in the form that the device reads. */
typedef struct gpu_dim {
    uint32_t size;
    uint32_t magic, shift; /* n / size is n * magic >> shift, for n below 2^31 */
    uint32_t src, dst;     /* strides in bytes */
    uint32_t lines;        /* of a run of GPU_WAY_LINES: n / lines is that product then */
} gpu_dim;

/* One strided copy, optionally with element conversion, in the form that the device reads: 64 bytes
 * and its dims in the list of dims. */
typedef struct gpu_box {
    uint64_t src; /* bytes from gpu_batch.src */
    uint64_t dst;
    uint64_t nelems;     /* units of `way` */
    uint64_t flip[2];    /* bits of an element that are inverted: signs */
    uint32_t first_task; /* of the launch */
    uint32_t tasks;
    uint32_t dims_at; /* number of the first one */
    uint8_t ndim;
    uint8_t from, to;    /* gpu_dtype; equal: no cast */
    uint8_t from_nbytes; /* 1 to 16 */
    uint8_t to_nbytes;
    uint8_t swap_nbytes; /* unit whose bytes are reversed: 2, 4, 8; else 0 */
    uint8_t negate;      /* integers: two's complement */
    uint8_t way;
    uint8_t src_log2; /* alignment of every source element as a power of two, up to 4 */
    uint8_t dst_log2;
    uint8_t unused[2];
} gpu_box;

/* Largest number of units of a box: indices inside a box are 32 bits. */
#define GPU_BOX_NELEMS_MAX ((uint64_t)1 << 31)
#define GPU_BOX_SPAN_MAX   ((uint64_t)UINT32_MAX - 64)
#define GPU_DIMS_MAX       64u

/* A launch. All addresses are in device memory; src and dst are multiples of 16. */
typedef struct gpu_batch {
    gpu_address src;
    gpu_address dst;
    gpu_address boxes; /* gpu_box, a multiple of 8 */
    gpu_address dims;  /* gpu_dim, a multiple of 8 */
    gpu_address lost;  /* uint64_t: finite elements out of range of their new type are added */
    /* A word that must have this value, or the launch does nothing: add_sum computes it from the
     * boxes, because a corrupted box could write anywhere. 0: no check. */
    gpu_address sum;
    uint64_t sum_expected;
    uint32_t count; /* boxes */
    uint32_t tasks; /* sum of theirs */
} gpu_batch;

/* A strided copy before gpu_box_prepare: ndim dims, sizes of at least 1. */
typedef struct gpu_copy {
    uint64_t src, dst;
    unsigned ndim; /* at most GPU_DIMS_MAX */
    const uint64_t *sizes, *src_strides, *dst_strides;
    gpu_dtype from, to;
    unsigned from_nbytes, to_nbytes;
    unsigned swap_nbytes; /* 0 or 1: none */
    uint64_t flip[2];
    bool negate;
} gpu_copy;

/* Fills a box except dims_at and first_task, and its dims. False if it has too many units or dims, or
 * spans 4 GiB: use another engine then. The caller should have joined dims that are contiguous on both
 * sides. dims has room for copy.ndim + 1. */
bool gpu_box_prepare(gpu_box *box, gpu_dim *dims, const gpu_copy *copy);

/* Checksum of copied bytes: words of 8 bytes, each mixed with its number, are added as 64 bits. It
 * detects every change within one word; changes of several words cancel only by chance. The last word is
 * padded with zeros. The checksum of a single word is the word. */
uint64_t gpu_sum(const void *bytes, uint64_t nbytes);

enum { GPU_MARKS = 4 };

typedef struct gpu_calls {
    void (*close)(gpu *g);
    /* Pinned host memory in whole pages, on the device's side of the machine. The free functions accept 0
     * and NULL. */
    fsdpck_status (*host_new)(gpu *g, uint64_t nbytes, void **memory, fsdpck_error *err);
    void (*host_free)(gpu *g, void *memory, uint64_t nbytes);
    fsdpck_status (*device_new)(gpu *g, uint64_t nbytes, gpu_address *memory, fsdpck_error *err);
    void (*device_free)(gpu *g, gpu_address memory);
    /* urgent: its kernels go before those of other streams. */
    fsdpck_status (*stream_new)(gpu *g, bool urgent, gpu_stream **stream, fsdpck_error *err);
    /* Waits for the pending work. */
    void (*stream_free)(gpu_stream *s);
    fsdpck_status (*copy_in)(gpu_stream *s, gpu_address to, const void *from, uint64_t nbytes,
                             fsdpck_error *err);
    fsdpck_status (*copy_out)(gpu_stream *s, void *to, gpu_address from, uint64_t nbytes,
                              fsdpck_error *err);
    fsdpck_status (*zero)(gpu_stream *s, gpu_address at, uint64_t nbytes, fsdpck_error *err);
    fsdpck_status (*place)(gpu_stream *s, const gpu_batch *what, fsdpck_error *err);
    /* Adds gpu_sum of device memory, beginning at a multiple of 8, to the word at `sum`. */
    fsdpck_status (*add_sum)(gpu_stream *s, gpu_address at, uint64_t nbytes, gpu_address sum,
                             fsdpck_error *err);
    /* Changes the word at `crc` by exclusive or with the raw CRC-64 (base/crc.h) of nbytes bytes of device
     * memory, not 0, and of zeros after them up to an address that is a multiple of 8. */
    fsdpck_status (*add_crc)(gpu_stream *s, gpu_address at, uint64_t nbytes, gpu_address crc,
                             fsdpck_error *err);
    /* Marks the end of all work submitted so far; mark is below GPU_MARKS and may be set again. */
    fsdpck_status (*mark)(gpu_stream *s, unsigned mark, fsdpck_error *err);
    /* Waits for all work before the mark; returns at once if it was never set. */
    fsdpck_status (*wait)(gpu_stream *s, unsigned mark, fsdpck_error *err);
    /* The same test without waiting. */
    fsdpck_status (*is_done)(gpu_stream *s, unsigned mark, bool *done, fsdpck_error *err);
    /* The stream in the form that NCCL requires. */
    void *(*stream_handle)(gpu_stream *s);
    /* Makes the device current in the calling thread, as NCCL requires; `leave` restores the
     * one before. All other calls do so themselves. */
    int (*enter)(gpu *g);
    void (*leave)(gpu *g, int before);
} gpu_calls;

/* First member of each implementation's own struct. */
struct gpu {
    const gpu_calls *calls;
    char name[64];         /* "NVIDIA H200" */
    unsigned index, count; /* number of the device, and of all devices */
    unsigned capability;   /* 90: sm_90 */
    uint8_t uuid[16];      /* of the device, or of its part under MIG; zeros: unknown */
};

/* --- the backend: gpu_cuda.c or gpu_none.c --- */

/* Opens the device for the local_rank-th process of its host: processes use the devices in turn.
 * Returns DEVICE at once, with the reason and the next step, if no device, driver or suitable build
 * exists. */
fsdpck_status gpu_open(unsigned local_rank, gpu **out, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Name of the backend, as users give it to --engine; NULL in a build without GPU support. */
const char *gpu_built_name(void);
/* One line about it; NULL likewise. */
const char *gpu_built_description(void);

#ifdef __cplusplus
}
#endif
#endif
