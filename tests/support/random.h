/* random.h: pseudorandom numbers, the same in every run. */
#ifndef FSDPCK_TESTS_SUPPORT_RANDOM_H
#define FSDPCK_TESTS_SUPPORT_RANDOM_H

#include <stdint.h>

/* Below `sides`; *state starts with any number (Knuth's MMIX generator). */
static inline uint64_t random_below(uint64_t *state, uint64_t sides)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % sides;
}

#endif
