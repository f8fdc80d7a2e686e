/* gpu_worker.h: the GPU part of a worker: a stream and memory, which fill its tiles.
 *
 *     RETURN_IF(gpu_worker_new(g, tile_span, staging_nbytes, pinned, &l, err));
 *     for each tile:
 *         RETURN_IF(gpu_worker_begin(l, err));
 *         for each read:
 *             RETURN_IF(gpu_worker_reserve(l, nbytes, like, boxes, dims, &buffer, err));
 *             read nbytes to buffer;
 *             gpu_worker_put(l, &convert, &strided, dst_at, src_in_buffer);   // boxes times at most
 *         RETURN_IF(gpu_worker_finish(l, &out, &lost, &intact, err));
 *     gpu_worker_free(l);
 *
 * Reads go to one of two buffers of pinned memory. A full buffer is copied to the device with the
 * list of its boxes. One launch then copies or converts the boxes to their places in the device's
 * tile, while reads continue into the other buffer. At the end the whole tile is copied back once.
 * Other workers read and write meanwhile.
 *
 * All copies to and from the device are checksummed on both sides, so a flipped bit is found. Data from
 * the device has a CRC-64, which serves the digests too: the host reads each byte once. All
 * memory is bounded, on the device and on the host.
 *
 * Bytes of other ranks come over the network to the device (exchange.h), and those for other ranks
 * leave from there:
 *
 *     sender:    gpu_worker_set_output(l, messages);  begin, reserve and put as above;
 *                out.sums = the place of each checksum;  finish;
 *     receiver:  begin;  RETURN_IF(gpu_worker_receive(l, message, nbytes, sum_at, err));
 *                RETURN_IF(gpu_worker_set_input(l, message, err));
 *                RETURN_IF(gpu_worker_put_received(l, &convert, &strided, dst_at, src_at, err));
 *                RETURN_IF(gpu_worker_set_input(l, 0, err));  reserve and put as above;  finish;
 */
#ifndef FSDPCK_EXEC_GPU_GPU_WORKER_H
#define FSDPCK_EXEC_GPU_GPU_WORKER_H

#include "kernels/gpu.h"
#include "state/element_ops.h"

typedef struct gpu_worker gpu_worker;

/* Size of pinned memory for a gpu_worker. */
uint64_t gpu_worker_host_nbytes(uint64_t staging_nbytes);

/* A bit for each kind of boxes: how they are copied, from which type to which. */
#define GPU_KINDS_NBYTES (GPU_WAYS * 16u * 16u / 8u)

/* kinds: GPU_KINDS_NBYTES that were zeroed, which several may share: the tile that first has boxes of a kind
 * is told so. tile_span: bytes of the span that destinations refer to. `pinned` has gpu_worker_host_nbytes and
 * 64-byte alignment; the caller owns it and frees it after gpu_worker_free. */
fsdpck_status gpu_worker_new(gpu *g, uint64_t tile_span, uint64_t staging_nbytes, uint8_t *pinned,
                             uint8_t *kinds, gpu_worker **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Waits for pending work. */
void gpu_worker_free(gpu_worker *l);

fsdpck_status gpu_worker_begin(gpu_worker *l, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Reserves at most staging_nbytes, for at most `boxes` boxes of `dims` words of dims in total, three a dim
 * (GATHER_READ_OPS and GATHER_DIMS at most). `like`: the main destination in the span, for equal
 * alignment. */
fsdpck_status gpu_worker_reserve(gpu_worker *l, uint64_t nbytes, uint64_t like, unsigned boxes,
                                 unsigned dims, uint8_t **buffer,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Like gather_copy_box: from the last reserved buffer to dst_at bytes of the span. */
void gpu_worker_put(gpu_worker *l, const element_ops *c, const strided *s, uint64_t dst_at,
                    const uint8_t *src);
/* The same for contiguous bytes. */
void gpu_worker_put_run(gpu_worker *l, uint64_t dst_at, const uint8_t *src, uint64_t nbytes);

/* Bytes of the span whose checksum is stored in the span, in the 8 bytes at sum_at. */
typedef struct gpu_worker_sum {
    uint64_t begin; /* multiple of 8, as sum_at */
    uint64_t nbytes;
    uint64_t sum_at;
} gpu_worker_sum;

/* Bytes [from, to) of the span, which are copied to `span` in pinned memory, with up to 15 bytes before
 * them. span NULL: nothing is copied. */
typedef struct gpu_worker_out {
    uint8_t *span;
    uint64_t from, to;
    const gpu_worker_sum *sums;
    unsigned sum_count;
    /* Their raw CRC-64, when they are there; NULL: computed by gpu_worker_finish. */
    uint64_t (*crc)(void *ctx);
    void *ctx;
} gpu_worker_out;

/* Copies nothing if no box was put. *lost: overflows, as from element_ops_box. *intact is false if a copy
 * changed bytes. */
fsdpck_status gpu_worker_finish(gpu_worker *l, const gpu_worker_out *out, uint64_t *lost,
                                bool *intact, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Uses other device memory of tile_span, at a multiple of 256, instead of the GPU worker's own; 0:
 * its own again. */
void gpu_worker_set_output(gpu_worker *l, gpu_address span);
/* Registers a message in device memory; gpu_worker_finish compares its checksum. */
fsdpck_status gpu_worker_receive(gpu_worker *l, gpu_address message, uint64_t nbytes,
                                 uint64_t sum_at, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* From now on boxes are put from this address, a multiple of 256 (gpu_worker_put_received); 0: from
 * reads. */
fsdpck_status gpu_worker_set_input(gpu_worker *l, gpu_address taken,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status gpu_worker_put_received(gpu_worker *l, const element_ops *c, const strided *s,
                                      uint64_t dst_at, uint64_t src_at,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether the tile had boxes of a new kind. */
bool gpu_worker_had_new_kinds(const gpu_worker *l);

#endif
