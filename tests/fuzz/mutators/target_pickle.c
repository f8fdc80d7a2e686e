#include "tests/fuzz/mutators/mutate.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed)
{
    return mutate_input(data, nbytes, capacity, seed, mutate_pickle);
}
