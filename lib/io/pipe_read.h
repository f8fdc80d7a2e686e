/* pipe_read.h: reads a small input that is a pipe, such as <(COMMAND) of a shell makes. It can be read once. */
#ifndef FSDPCK_IO_PIPE_READ_H
#define FSDPCK_IO_PIPE_READ_H

#include <stdbool.h>

#include "base/alloc.h"

bool pipe_is_at(const char *path);
/* All bytes until the writer closes it, NUL-terminated, malloc'd. Waits for a writer. LIMIT (LIMIT-SIZE) over
 * limit_bytes. */
fsdpck_status pipe_read_whole(const char *path, uint64_t limit_bytes, char **text, size_t *nbytes,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
