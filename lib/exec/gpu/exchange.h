/* exchange.h: tiles whose bytes are on disks of other ranks, by NCCL from GPU to GPU.
 *
 *     RETURN_IF(exchange_open(x, err));   // by all ranks; x->of_engine->exchange is NULL: by MPI, then
 *     st = exchange_run(exchange, err);   // this rank's items
 *     st = group_agree(g, st, err);
 *     exchange_close(x, st == FSDPCK_OK);
 *
 * Each rank knows who fills which tile and who reads which file for it, and so the same rounds
 * (rounds.h). What a rank reads for another's tile it places and casts into a message in its device's
 * memory: the segments one after the other, packed, in the order in which the plan gives them. In a round
 * all messages go in one group of sends and receives, on a stream of their own, while the workers fill
 * and write the tiles of the round before and make the messages of the next one. The receiver's device
 * places what came beside what it reads itself.
 *
 * Only the thread that runs it calls NCCL. Its waits end with the run's cancel token (which is set where
 * another rank fails or is lost) and some seconds after the group's peer timeout: the communicator is
 * aborted then.
 *
 * A message has the sum that the sender's device made of it. Where it is another one at the receiver the
 * tile is filled once more, by reads over MPI, as are streams, column groups (column_group.h) and replicas always.
 *
 * Device memory: twice what a round sends and receives, with the lanes within the memory of the request.
 */
#ifndef FSDPCK_EXEC_GPU_EXCHANGE_H
#define FSDPCK_EXEC_GPU_EXCHANGE_H

#include "exec/gpu/gpu_internal.h"
#include "exec/gpu/rounds.h"

typedef struct exchange exchange;

/* What came for a tile. */
typedef struct exchange_received {
    gpu_address at; /* needs' at_to count from it; a multiple of ROUNDS_ALIGN */
    const round_need *needs;
    uint32_t need_count;
} exchange_received;

/* Of device memory, for each worker of the rank that has the least of them. */
uint64_t exchange_worker_nbytes(uint64_t tile_span);

/* After exec_assign_work. A failure to get NCCL, or memory for it, is none: then all ranks go without. */
fsdpck_status exchange_open(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status exchange_run(exchange *e, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* In order only where all ranks are done. */
void exchange_close(struct exec *x, bool in_order);

/* Who reads a source file for the tiles of a rank: itself where it has it. */
unsigned exchange_reader(const exchange *e, uint32_t file_index, unsigned rank);
/* All of a tile by the worker's GPU part: out of travel.recv_buffer, and what this rank reads itself. */
fsdpck_status exchange_gather(worker *w, const output_range *range,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
