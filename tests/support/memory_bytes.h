/* memory_bytes.h: bytes in memory as the input of a reader, which must not read outside them. */
#ifndef FSDPCK_TESTS_SUPPORT_MEMORY_BYTES_H
#define FSDPCK_TESTS_SUPPORT_MEMORY_BYTES_H

#include <string.h>

#include "base/checked.h"
#include "base/fsdpck_status.h"
#include "tests/support/must.h"

typedef struct memory_bytes {
    const uint8_t *bytes;
    size_t nbytes;
} memory_bytes;

static inline fsdpck_status memory_bytes_read(void *ctx, uint64_t offset_bytes, void *dst,
                                              uint64_t nbytes, fsdpck_error *err)
{
    const memory_bytes *m = ctx;
    (void)err;
    must(checked_range(offset_bytes, nbytes, m->nbytes), "read outside of the bytes");
    if (nbytes > 0)
        memcpy(dst, m->bytes + offset_bytes, nbytes);
    return FSDPCK_OK;
}

#endif
