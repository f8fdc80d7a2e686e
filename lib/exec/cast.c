#include "exec/cast.h"

#include <string.h>
bool cast_supported(dtype from, dtype to)
{
    return from == to;
}

uint64_t cast_elements(dtype from, dtype to, void *dst, const void *src, uint64_t n)
{
    (void)to;
    memcpy(dst, src, n * dtype_get(from)->itemsize_bytes);
    return 0;
}
