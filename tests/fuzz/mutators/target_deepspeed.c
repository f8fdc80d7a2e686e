#include <string.h>

#include "base/bytes.h"
#include "tests/fuzz/mutators/mutate.h"

enum { FILES_MAX = 9 };

/* A byte, then files, each after its u32 length. */
static void mutate(mutation *m)
{
    size_t begins[FILES_MAX], count = 0;
    for (size_t at = 1; count < FILES_MAX && m->nbytes >= 4 && at <= m->nbytes - 4;) {
        const uint32_t length = load_le32(m->bytes + at);
        if (length > m->nbytes - at - 4)
            break;
        begins[count++] = at;
        at += 4 + (size_t)length;
    }
    if (count == 0 || mutate_below(m, 32) == 0) {
        mutate_bytes(m);
        return;
    }
    const size_t at = begins[mutate_below(m, count)];
    size_t nbytes = load_le32(m->bytes + at);
    mutate_part(m, at + 4, &nbytes, mutate_zip);
    const uint32_t n = (uint32_t)nbytes;
    memcpy(m->bytes + at, &n, 4);
}

MUTATOR(mutate)
