#include "base/struct_copy.h"

#include <string.h>

static size_t size_of(const void *given)
{
    size_t nbytes;
    memcpy(&nbytes, given, sizeof nbytes);
    return nbytes;
}

void struct_copy_in(void *to, size_t nbytes, const void *from)
{
    if (from == NULL)
        return;
    const size_t given = size_of(from);
    memcpy(to, from, given < nbytes ? given : nbytes);
}

void struct_copy_out(void *to, const void *from, size_t nbytes)
{
    const size_t given = size_of(to);
    const size_t n = given < nbytes ? given : nbytes;
    if (n > sizeof given)
        memcpy((char *)to + sizeof given, (const char *)from + sizeof given, n - sizeof given);
    if (given > nbytes)
        memset((char *)to + nbytes, 0, given - nbytes);
}
