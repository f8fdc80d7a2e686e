#include "layout/torch_chunk.h"

#include "base/checked.h"

uint64_t torch_chunk_size(uint64_t n, uint64_t nparts)
{
    if (nparts <= 1)
        return n;
    return n / nparts + (n % nparts != 0);
}

void torch_chunk_range(uint64_t n, uint64_t nparts, uint64_t part, uint64_t *offset, uint64_t *size)
{
    const uint64_t c = torch_chunk_size(n, nparts);
    uint64_t begin;
    if (!checked_mul(part, c, &begin) || begin >= n) {
        *offset = n;
        *size = 0;
        return;
    }
    *offset = begin;
    *size = n - begin < c ? n - begin : c;
}
