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

MUTATOR(mutate)
