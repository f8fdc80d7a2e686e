#include "base/checked.h"

bool checked_product(const uint64_t *sizes, size_t n, uint64_t *product)
{
    uint64_t p = 1;
    bool fits = true;
    for (size_t i = 0; i < n; i++) {
        if (sizes[i] == 0) {
            *product = 0;
            return true;
        }
        fits = fits && checked_mul(p, sizes[i], &p);
    }
    if (fits)
        *product = p;
    return fits;
}
