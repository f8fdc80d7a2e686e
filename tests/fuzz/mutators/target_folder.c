#include "tests/fuzz/mutators/mutate.h"

/* Files first, at most 25 bytes; then the index. */
static void mutate(mutation *m)
{
    size_t at = 0;
    while (at < m->nbytes && m->bytes[at] != '{')
        at++;
    size_t files = at, index = m->nbytes - at;
    if (index > 0 && !mutate_once_in(m, 3))
        mutate_part(m, at, &index, mutate_json);
    else
        mutate_part(m, 0, &files, mutate_bytes);
}

MUTATOR(mutate)
