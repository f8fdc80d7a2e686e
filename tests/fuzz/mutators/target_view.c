#include <string.h>

#include "tests/fuzz/mutators/mutate.h"

/* A list of units up to a line "]"; lines after it. */
static void mutate(mutation *m)
{
    size_t at = 0;
    while (at + 3 <= m->nbytes && memcmp(m->bytes + at, "\n]\n", 3) != 0)
        at++;
    size_t units = at + 3 <= m->nbytes ? at + 2 : m->nbytes;
    size_t lines = m->nbytes - units;
    if (lines > 0 && mutate_once_in(m, 2))
        mutate_part(m, units, &lines, mutate_bytes);
    else
        mutate_part(m, 0, &units, mutate_json);
}

MUTATOR(mutate)
