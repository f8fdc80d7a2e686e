/* exchange.h: fills tiles with bytes from other ranks' disks, by NCCL from GPU to GPU.
 *
 *     RETURN_IF(exchange_open(x, err));   // collective; if x->of_engine->exchange is NULL, MPI is used
 *     st = exchange_run(exchange, err);   // this rank's items
 *     st = group_agree(g, st, err);
 *     exchange_close(x, st == FSDPCK_OK);
 *
 * Each rank derives from the plan which rank fills each tile and which one reads each file for it,
 * so all compute the same rounds (rounds.h). A rank places and casts the data that it reads for
 * others into messages in device memory: packed segments, in plan order. The messages of a round
 * are one group of sends and receives on a separate stream. Meanwhile workers fill and write the
 * tiles of the previous round and make the messages of the next one. The receiver's device places
 * the messages beside the data that it reads itself.
 *
 * Only one thread calls NCCL. Its waits end when the run's cancel token is set (also if another
 * rank fails or is lost), or if no other rank has read or written for some seconds more than the group's
 * peer timeout; the communicator is then aborted.
 *
 * A message has a checksum computed by the sender's device. If it differs at the receiver, the tile
 * is filled again by reads over MPI. Streams, column groups (column_group.h) and replicas always
 * use MPI.
 *
 * Device memory: twice the data of a round, which counts with the GPU workers against the memory of
 * the request.
 */
#ifndef FSDPCK_EXEC_GPU_EXCHANGE_H
#define FSDPCK_EXEC_GPU_EXCHANGE_H

#include "exec/gpu/gpu_internal.h"
#include "exec/gpu/rounds.h"

typedef struct exchange exchange;

/* Received data of a tile. */
typedef struct exchange_received {
    gpu_address at; /* origin of the needs' at_to; a multiple of ROUNDS_ALIGN */
    const round_need *needs;
    uint32_t need_count;
} exchange_received;

/* Device memory per worker, of the rank with the least. */
uint64_t exchange_worker_nbytes(uint64_t tile_span);

/* After exec_assign_work. If a rank cannot get NCCL or its memory, all ranks do without; this is
 * not a failure. */
fsdpck_status exchange_open(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status exchange_run(exchange *e, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* `in_order`: only if all ranks have finished. */
void exchange_close(struct exec *x, bool in_order);

/* The rank that reads a source file for the tiles of `rank`: `rank` itself if it has the file. */
unsigned exchange_reader(const exchange *e, uint32_t file_index, unsigned rank);
/* Fills a tile by the worker's GPU part, from tile_exchange.recv_buffer and this rank's own
 * reads. */
fsdpck_status exchange_gather(worker *w, const output_range *range,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
