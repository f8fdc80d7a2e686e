/* compress.h: replaces the engine if the target is compressed (state/filter.h). */
#ifndef FSDPCK_EXEC_COMPRESS_H
#define FSDPCK_EXEC_COMPRESS_H

#include "exec/exec_internal.h"

/* Compressed cells per worker that are not yet written: several, so that a worker does not wait for
 * a slower one. */
#define COMPRESS_SLOTS_PER_WORKER 2u

/* Writes all cells, then the bytes between them, to exec.out; no streams. */
fsdpck_status compress_run(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Memory of a worker in addition to its tile, and the minimum size of a tile; 0 if the target is
 * not compressed. */
uint64_t compress_worker_nbytes(const struct exec *x);
uint64_t compress_tile_nbytes_min(const struct exec *x);

#endif
