/* compress.h: in place of the engine, where the target is packed (state/filter.h). */
#ifndef FSDPCK_EXEC_COMPRESS_H
#define FSDPCK_EXEC_COMPRESS_H

#include "exec/exec_internal.h"

/* Cells that are compressed and not yet written, for each worker: more than one, so that none waits for
 * a slower one before it. */
#define COMPRESS_SLOTS_PER_WORKER 2u

/* All cells, then what is around them, to exec.out; without streams. */
fsdpck_status compress_run(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Memory that a worker needs besides its tile, and the least that a tile may be; 0 where nothing is
 * packed. */
uint64_t compress_worker_nbytes(const struct exec *x);
uint64_t compress_tile_nbytes_min(const struct exec *x);

#endif
