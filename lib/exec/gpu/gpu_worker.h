/* gpu_worker.h: what a worker has of a GPU: a stream and memory, by which its tiles are filled.
 *
 *     RETURN_IF(gpu_worker_new(g, tile_span, staging_nbytes, pinned, &l, err));
 *     for each tile:
 *         RETURN_IF(gpu_worker_begin(l, err));
 *         for each read:
 *             RETURN_IF(gpu_worker_reserve(l, nbytes, like, boxes, dims, &buffer, err));
 *             read nbytes to buffer;
 *             gpu_worker_put(l, &convert, &strided, dst_at, src_in_buffer);   // boxes times at most
 *         RETURN_IF(gpu_worker_finish(l, base, from, to, &lost, &intact, err));
 *     gpu_worker_free(l);
 *
 * Reads go to one of two pieces of pinned memory. When one is full it is copied to the device with the
 * list of its boxes, which one launch then copies or converts to their places in the device's tile,
 * while the next reads go to the other. In the end the tile comes back as a whole, once. Other workers
 * read and write meanwhile.
 *
 * What the device got is summed there and here, and so is what comes back: a copy that changed a bit is
 * found. All memory is bounded: of the device as much as of the host.
 *
 * Bytes that another rank has read come over the network to the device (exchange.h), and those for another
 * rank go from there:
 *
 *     sender:    gpu_worker_set_output(l, message);  begin, reserve and put as above;  finish;
 *                RETURN_IF(gpu_worker_append_sum(l, nbytes, sum_at, err));           // its sum behind it
 *     receiver:  begin;  RETURN_IF(gpu_worker_receive(l, message, nbytes, sum_at, err));
 *                RETURN_IF(gpu_worker_set_input(l, message, err));
 *                RETURN_IF(gpu_worker_put_received(l, &convert, &strided, dst_at, src_at, err));
 *                RETURN_IF(gpu_worker_set_input(l, 0, err));  reserve and put as above;  finish;
 */
#ifndef FSDPCK_EXEC_GPU_GPU_WORKER_H
#define FSDPCK_EXEC_GPU_GPU_WORKER_H

#include "exec/convert.h"
#include "kernels/gpu.h"

typedef struct gpu_worker gpu_worker;

/* Of pinned memory for a gpu_worker. */
uint64_t gpu_worker_host_nbytes(uint64_t staging_nbytes);

/* tile_span: all that places count from. `pinned` has gpu_worker_host_nbytes, is a multiple of 64, and is
 * the caller's, until after gpu_worker_free. */
fsdpck_status gpu_worker_new(gpu *g, uint64_t tile_span, uint64_t staging_nbytes, uint8_t *pinned,
                             gpu_worker **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Waits for what is under way. */
void gpu_worker_free(gpu_worker *l);

fsdpck_status gpu_worker_begin(gpu_worker *l, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* At most staging_nbytes, for at most `boxes` boxes of `dims` dims in all (GATHER_READ_OPS and
 * GATHER_DIMS at most). `like`: where in the span most of it will lie, for the same alignment. */
fsdpck_status gpu_worker_reserve(gpu_worker *l, uint64_t nbytes, uint64_t like, unsigned boxes,
                                 unsigned dims, uint8_t **buffer,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* As gather_copy_box: from the buffer reserved last to dst_at bytes of the span. */
void gpu_worker_put(gpu_worker *l, const convert *c, const strided *s, uint64_t dst_at,
                    const uint8_t *src);
/* The same of bytes in a row. */
void gpu_worker_put_run(gpu_worker *l, uint64_t dst_at, const uint8_t *src, uint64_t nbytes);

/* Bytes [from, to) of the span, which `span` begins in pinned memory, with up to 15 bytes before them;
 * nothing where nothing was put, or where span is NULL. *lost as convert_box returns. Where *intact is
 * false a copy changed bytes. */
fsdpck_status gpu_worker_finish(gpu_worker *l, uint8_t *span, uint64_t from, uint64_t to,
                                uint64_t *lost, bool *intact, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Other device memory of tile_span, a multiple of 256, in place of the GPU worker's own; 0: its own again. */
void gpu_worker_set_output(gpu_worker *l, gpu_address span);
/* After gpu_worker_finish of [0, nbytes): their sum to the 8 bytes at sum_at, a multiple of 8. Waits. */
fsdpck_status gpu_worker_append_sum(gpu_worker *l, uint64_t nbytes, uint64_t sum_at,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A sealed message that is in device memory now: gpu_worker_finish compares its sum. */
fsdpck_status gpu_worker_receive(gpu_worker *l, gpu_address message, uint64_t nbytes,
                                 uint64_t sum_at, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* From now on boxes are put from there, a multiple of 256 (gpu_worker_put_received); 0: from what is read. */
fsdpck_status gpu_worker_set_input(gpu_worker *l, gpu_address taken,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status gpu_worker_put_received(gpu_worker *l, const convert *c, const strided *s,
                                      uint64_t dst_at, uint64_t src_at,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether the tile had boxes of a kind that this GPU worker did not do before. */
bool gpu_worker_had_new_kinds(const gpu_worker *l);

#endif
