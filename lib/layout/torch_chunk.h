/* torch_chunk.h: torch's division of a dim of n elements into W parts (torch.chunk, as FSDP2,
 * DTensor's Shard and ShardedTensor use it; torch 2.15).
 *
 *     c = ceil(n / W); part r is [min(n, r*c), min(n, (r+1)*c))
 *
 * Trailing parts may be empty; an empty part has the offset n, which is also what DCP records.
 *
 *     torch_chunk_range(5, 4, 2, &offset, &size);    // 4, 1
 */
#ifndef FSDPCK_LAYOUT_TORCH_CHUNK_H
#define FSDPCK_LAYOUT_TORCH_CHUNK_H

#include <stdint.h>

/* ceil(n / nparts): the size of every full part, which is also the size that FSDP pads each part
 * to. nparts 0 counts as 1. */
uint64_t torch_chunk_size(uint64_t n, uint64_t nparts);

/* Offset and size of part `part` of nparts, for any values (part >= nparts gives an empty part at
 * n). */
void torch_chunk_range(uint64_t n, uint64_t nparts, uint64_t part, uint64_t *offset,
                       uint64_t *size);

#endif
