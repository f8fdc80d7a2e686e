#include "tests/support/mutate_dice.h"

#include <string.h>

#include "tests/fuzz/mutators/mutate.h"

uint64_t mutate_dice = 1;

void mutate_dice_start(uint64_t seed, uint64_t at)
{
    mutate_dice = seed;
    mutate_dice = mutate_dice_below(SIZE_MAX) + at;
    mutate_dice = mutate_dice_below(SIZE_MAX);
}

size_t mutate_dice_below(size_t n)
{
    mutation m = {.random = mutate_dice};
    const size_t drawn = mutate_below(&m, n);
    mutate_dice = m.random;
    return drawn;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t nbytes, size_t capacity)
{
    const size_t at = mutate_dice_below(nbytes + 1);
    switch (nbytes == 0 ? 3 : mutate_dice_below(4)) {
    case 0:
        data[mutate_dice_below(nbytes)] ^= (uint8_t)(1u << mutate_dice_below(8));
        return nbytes;
    case 1:
        data[mutate_dice_below(nbytes)] = (uint8_t)mutate_dice_below(256);
        return nbytes;
    case 2:
        memmove(data + at, data + at + (at < nbytes), nbytes - at - (at < nbytes));
        return nbytes - (at < nbytes);
    default:
        if (nbytes == capacity)
            return nbytes;
        memmove(data + at + 1, data + at, nbytes - at);
        data[at] = (uint8_t)mutate_dice_below(256);
        return nbytes + 1;
    }
}
