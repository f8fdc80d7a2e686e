/* memory_box.h: checks of a box of a tensor in memory of the caller, for fsdpck_load and fsdpck_open_memory.
 *
 *     RETURN_IF(memory_box_check(&t, ndim, shape, type, &nbytes, err));
 */
#ifndef FSDPCK_OPEN_MEMORY_BOX_H
#define FSDPCK_OPEN_MEMORY_BOX_H

#include "fsdpck_load.h"
#include "state/dtype.h"

/* Sets offsets and sizes of `t` that are NULL, and `ndim`; `shape` is borrowed then. *nbytes: from the first byte of the
 * box in memory to its last one; 0: it has no elements. Errors: USAGE. */
fsdpck_status memory_box_check(fsdpck_load_tensor *t, unsigned ndim, const uint64_t *shape,
                               dtype type, uint64_t *nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
