#include <stdlib.h>
#include <string.h>

#include "io/file.h"

/* The first block is small, as most files differ there. */
enum { FIRST_NBYTES = 1 << 12, BLOCK_NBYTES = 1 << 20 };

bool file_has_same_bytes(const file *a, const file *b)
{
    const uint64_t most = a->nbytes < BLOCK_NBYTES ? a->nbytes : BLOCK_NBYTES;
    if (a->nbytes != b->nbytes || a->nbytes == 0)
        return a->nbytes == b->nbytes;
    uint8_t *blocks = malloc(2 * most);
    bool same = blocks != NULL;
    for (uint64_t at = 0, n; same && at < a->nbytes; at += n) {
        const uint64_t left = a->nbytes - at;
        n = at == 0 && left > FIRST_NBYTES ? FIRST_NBYTES : left < most ? left : most;
        same = file_read_at(a, at, blocks, n, NULL) == FSDPCK_OK &&
               file_read_at(b, at, blocks + most, n, NULL) == FSDPCK_OK &&
               memcmp(blocks, blocks + most, n) == 0;
    }
    free(blocks);
    return same;
}
