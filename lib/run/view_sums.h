/* view_sums.h: digests of tensors that share another tensor's storage, which have no bytes of their
 * own.
 *
 *     RETURN_IF(view_sums_fill(r, err));       // once all is written; then digest_rows_make
 */
#ifndef FSDPCK_RUN_VIEW_SUMS_H
#define FSDPCK_RUN_VIEW_SUMS_H

#include "run/run.h"

/* Reads a file of the output on any host; from any thread. `arg`: the run. */
fsdpck_status run_read_output(void *arg, size_t file_index, uint64_t offset_bytes, void *dst,
                              uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Reads the elements of each view from the output, and fills r->to.chunk_digest of its chunk. */
fsdpck_status view_sums_fill(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
