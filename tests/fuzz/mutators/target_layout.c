#include "tests/fuzz/mutators/mutate.h"

/* 'p' and a TP plan, which is JSON; all else is bytes. */
static void mutate(mutation *m)
{
    size_t nbytes = m->nbytes - 1;
    if (m->nbytes > 1 && m->bytes[0] == 'p')
        mutate_part(m, 1, &nbytes, mutate_json);
    else
        mutate_bytes(m);
}

MUTATOR(mutate)
