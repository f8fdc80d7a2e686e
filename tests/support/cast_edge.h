/* cast_edge.h: elements on which casts differ: ties, subnormal numbers, limits, NaN. */
#ifndef FSDPCK_TESTS_SUPPORT_CAST_EDGE_H
#define FSDPCK_TESTS_SUPPORT_CAST_EDGE_H

#include "state/dtype.h"

static inline uint64_t cast_edge_draw(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Element number i of all that a type of up to 16 bits has, of the upper halves of float32 with a few
 * lower ones, or by chance with exponents that matter. */
static inline uint64_t cast_edge(dtype type, uint64_t i, uint64_t *state)
{
    static const uint32_t tails[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1000, 0xFFF};
    const uint64_t r = cast_edge_draw(state);
    if (type == DTYPE_FLOAT32)
        return (i % 65536) << 16 | (i < 65536 * 8 ? tails[i / 65536] : r & 0xFFFF);
    if (type != DTYPE_FLOAT64)
        return i;
    if (i % 4 == 0) /* exponents of float32, and its ties */
        return (r & 0x800FFFFFE0000000u) | (0x380ull - 30 + r % 320) << 52 | (r >> 8 & 0x10000000u);
    if (i % 4 == 1)
        return (r & 0x800FFFFFFFFFFFFFu) | 0x7FFull << 52;
    return i % 4 == 2 ? r : (r & 0x8000000000000000u) | 0x7FFull << 52;
}

#endif
