#include <string.h>

#include "base/bytes.h"
#include "tests/fuzz/mutators/mutate.h"

/* u32 length of the first rank's file, then both files. */
static void mutate(mutation *m)
{
    const uint32_t first = m->nbytes >= 4 ? load_le32(m->bytes) : 0;
    if (m->nbytes <= 4 || first > m->nbytes - 4) {
        mutate_bytes(m);
        return;
    }
    size_t sizes[2] = {first, m->nbytes - 4 - first};
    const size_t which = mutate_below(m, 2);
    mutate_part(m, which == 0 ? 4 : 4 + sizes[0], &sizes[which], mutate_zip);
    const uint32_t n = (uint32_t)sizes[0];
    memcpy(m->bytes, &n, 4);
}

MUTATOR(mutate)
