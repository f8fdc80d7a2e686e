/* view_sums.h: digests of tensors that share another tensor's storage, which have no bytes of their
 * own.
 *
 *     RETURN_IF(view_sums_fill(r, err));       // once all is written; then digest_rows_make
 */
#ifndef FSDPCK_RUN_VIEW_SUMS_H
#define FSDPCK_RUN_VIEW_SUMS_H

#include "run/run.h"

/* Reads the elements of each view from the output, and fills r->to.chunk_digest of its chunk. */
fsdpck_status view_sums_fill(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
