#include "state/tensor_rank_suffix.h"

#include <string.h>

#include "state/catalogue.h"

uint32_t name_cut_rank(const char *text, size_t *nbytes)
{
    size_t at = *nbytes;
    uint32_t rank = 0;
    while (at > 0 && text[at - 1] != '.')
        at--;
    if (at == 0 || *nbytes - at < 5 || *nbytes - at > 12 || memcmp(text + at, "rank", 4) != 0)
        return CAT_NONE;
    for (size_t i = at + 4; i < *nbytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return CAT_NONE;
        rank = rank * 10 + (uint32_t)(text[i] - '0');
    }
    *nbytes = at - 1;
    return rank;
}

size_t name_without_rank(const char *text, size_t nbytes)
{
    (void)name_cut_rank(text, &nbytes);
    return nbytes;
}
