#include "tests/fuzz/mutators/mutate.h"

#include <stdlib.h>
#include <string.h>

size_t mutate_below(mutation *m, size_t n)
{
    m->random += 0x9E3779B97F4A7C15u;
    uint64_t z = m->random;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return n == 0 ? 0 : (size_t)((z ^ (z >> 31)) % n);
}

bool mutate_once_in(mutation *m, size_t n)
{
    return mutate_below(m, n) == 0;
}

bool mutate_replace(mutation *m, size_t at, size_t old_nbytes, const void *with, size_t nbytes)
{
    if (at > m->nbytes || old_nbytes > m->nbytes - at ||
        nbytes > m->capacity - (m->nbytes - old_nbytes))
        return false;
    uint8_t *copy = malloc(nbytes + 1);
    if (copy == NULL)
        return false;
    if (nbytes > 0)
        memcpy(copy, with, nbytes);
    memmove(m->bytes + at + nbytes, m->bytes + at + old_nbytes, m->nbytes - at - old_nbytes);
    memcpy(m->bytes + at, copy, nbytes);
    m->nbytes = m->nbytes - old_nbytes + nbytes;
    free(copy);
    return true;
}

uint64_t mutate_number(mutation *m, uint64_t v)
{
    switch (mutate_below(m, 8)) {
    case 0:
        return mutate_below(m, 4);
    case 1:
        return UINT64_C(1) << mutate_below(m, 64);
    case 2:
        return (UINT64_C(1) << mutate_below(m, 64)) - 1;
    case 3:
        return UINT64_MAX - mutate_below(m, 4);
    case 4:
        return v * (2 + mutate_below(m, 7));
    case 5:
        return v / (2 + mutate_below(m, 7));
    default:
        return mutate_once_in(m, 2) ? v + 1 + mutate_below(m, 3) : v - 1 - mutate_below(m, 3);
    }
}

void mutate_part(mutation *m, size_t at, size_t *nbytes, mutate_fn fn)
{
    const size_t room = m->capacity - (m->nbytes - *nbytes);
    uint8_t *copy = malloc(room + 1);
    if (copy == NULL)
        return;
    memcpy(copy, m->bytes + at, *nbytes);
    mutation part = {.bytes = copy, .nbytes = *nbytes, .capacity = room, .random = m->random};
    fn(&part);
    m->random = part.random;
    if (mutate_replace(m, at, *nbytes, part.bytes, part.nbytes))
        *nbytes = part.nbytes;
    free(copy);
}

void mutate_bytes(mutation *m)
{
    m->nbytes = LLVMFuzzerMutate(m->bytes, m->nbytes, m->capacity);
}

size_t mutate_input(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed, mutate_fn fn)
{
    mutation m = {.bytes = data, .nbytes = nbytes, .capacity = capacity, .random = seed};
    if (nbytes == 0 || mutate_once_in(&m, 5))
        return LLVMFuzzerMutate(data, nbytes, capacity);
    for (size_t left = 1 + mutate_below(&m, 3); left > 0; left--)
        fn(&m);
    return m.nbytes;
}
