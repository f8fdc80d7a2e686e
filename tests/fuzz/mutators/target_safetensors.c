#include "tests/fuzz/mutators/mutate.h"

/* The first byte tells a stream from an index. */
static void mutate(mutation *m)
{
    size_t nbytes = m->nbytes - 1;
    if (m->nbytes > 1)
        mutate_part(m, 1, &nbytes, m->bytes[0] == 0 ? mutate_st_header : mutate_json);
    else
        mutate_bytes(m);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed)
{
    return mutate_input(data, nbytes, capacity, seed, mutate);
}
