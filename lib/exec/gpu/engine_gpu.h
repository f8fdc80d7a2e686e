/* engine_gpu.h: what a worker has of a GPU: a stream and memory, by which its tiles are filled.
 *
 *     RETURN_IF(gpu_lane_new(g, tile_span, staging_nbytes, pinned, &l, err));
 *     for each tile:
 *         RETURN_IF(gpu_lane_begin(l, err));
 *         for each read:
 *             RETURN_IF(gpu_lane_reserve(l, nbytes, like, boxes, dims, &buffer, err));
 *             read nbytes to buffer;
 *             gpu_lane_put(l, &convert, &strided, dst_at, src_in_buffer);   // boxes times at most
 *         RETURN_IF(gpu_lane_finish(l, base, from, to, &lost, &intact, err));
 *     gpu_lane_free(l);
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
 *     sender:    gpu_lane_to(l, message);  begin, reserve and put as above;  finish;
 *                RETURN_IF(gpu_lane_seal(l, nbytes, sum_at, err));           // its sum behind it
 *     receiver:  begin;  RETURN_IF(gpu_lane_take(l, message, nbytes, sum_at, err));
 *                RETURN_IF(gpu_lane_from(l, message, err));
 *                RETURN_IF(gpu_lane_put_taken(l, &convert, &strided, dst_at, src_at, err));
 *                RETURN_IF(gpu_lane_from(l, 0, err));  reserve and put as above;  finish;
 */
#ifndef FSDPCK_EXEC_GPU_ENGINE_GPU_H
#define FSDPCK_EXEC_GPU_ENGINE_GPU_H

#include "exec/convert.h"
#include "kernels/gpu.h"

typedef struct gpu_lane gpu_lane;

/* Of pinned memory for a lane. */
uint64_t gpu_lane_host_nbytes(uint64_t staging_nbytes);

/* tile_span: all that places count from. `pinned` has gpu_lane_host_nbytes, is a multiple of 64, and is
 * the caller's, until after gpu_lane_free. */
fsdpck_status gpu_lane_new(gpu *g, uint64_t tile_span, uint64_t staging_nbytes, uint8_t *pinned,
                           gpu_lane **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Waits for what is under way. */
void gpu_lane_free(gpu_lane *l);

fsdpck_status gpu_lane_begin(gpu_lane *l, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* At most staging_nbytes, for at most `boxes` boxes of `dims` dims in all (GATHER_PIECES and
 * GATHER_DIMS at most). `like`: where in the span most of it will lie, for the same alignment. */
fsdpck_status gpu_lane_reserve(gpu_lane *l, uint64_t nbytes, uint64_t like, unsigned boxes,
                               unsigned dims, uint8_t **buffer,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* As gather_place: from the buffer reserved last to dst_at bytes of the span. */
void gpu_lane_put(gpu_lane *l, const convert *c, const strided *s, uint64_t dst_at,
                  const uint8_t *src);
/* The same of bytes in a row. */
void gpu_lane_put_run(gpu_lane *l, uint64_t dst_at, const uint8_t *src, uint64_t nbytes);

/* Bytes [from, to) of the span, which `span` begins in pinned memory, with up to 15 bytes before them;
 * nothing where nothing was put, or where span is NULL. *lost as convert_box returns. Where *intact is
 * false a copy changed bytes. */
fsdpck_status gpu_lane_finish(gpu_lane *l, uint8_t *span, uint64_t from, uint64_t to,
                              uint64_t *lost, bool *intact, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Other device memory of tile_span, a multiple of 256, in place of the lane's own; 0: its own again. */
void gpu_lane_to(gpu_lane *l, gpu_address span);
/* After gpu_lane_finish of [0, nbytes): their sum to the 8 bytes at sum_at, a multiple of 8. Waits. */
fsdpck_status gpu_lane_seal(gpu_lane *l, uint64_t nbytes, uint64_t sum_at,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A sealed message that is in device memory now: gpu_lane_finish compares its sum. */
fsdpck_status gpu_lane_take(gpu_lane *l, gpu_address message, uint64_t nbytes, uint64_t sum_at,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* From now on boxes are put from there, a multiple of 256 (gpu_lane_put_taken); 0: from what is read. */
fsdpck_status gpu_lane_from(gpu_lane *l, gpu_address taken, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status gpu_lane_put_taken(gpu_lane *l, const convert *c, const strided *s, uint64_t dst_at,
                                 uint64_t src_at, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether the tile had boxes of a kind that this lane did not do before. */
bool gpu_lane_had_new_kinds(const gpu_lane *l);

#endif
