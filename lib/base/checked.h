/* checked.h: the only arithmetic on numbers read from a file.
 *
 * Each function returns true if the result fits and was stored. It returns false otherwise and
 * leaves the result unchanged. No other code may multiply, add or shift sizes, counts or offsets
 * from an input.
 *
 *     uint64_t nbytes;
 *     if (!checked_mul(nelems, itemsize, &nbytes) || !checked_range(offset, nbytes, file_nbytes))
 *         return error_set(...);
 */
#ifndef FSDPCK_BASE_CHECKED_H
#define FSDPCK_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *sum)
{
    uint64_t s;
    if (__builtin_add_overflow(a, b, &s))
        return false;
    *sum = s;
    return true;
}

static inline bool checked_sub(uint64_t a, uint64_t b, uint64_t *difference)
{
    if (b > a)
        return false;
    *difference = a - b;
    return true;
}

static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *product)
{
    uint64_t p;
    if (__builtin_mul_overflow(a, b, &p))
        return false;
    *product = p;
    return true;
}

/* a * b + c */
static inline bool checked_mul_add(uint64_t a, uint64_t b, uint64_t c, uint64_t *result)
{
    uint64_t p;
    return checked_mul(a, b, &p) && checked_add(p, c, result);
}

/* Rounds up to a multiple of `alignment`, a power of two. */
static inline bool checked_align_up(uint64_t n, uint64_t alignment, uint64_t *aligned)
{
    uint64_t v;
    if (!checked_add(n, alignment - 1, &v))
        return false;
    *aligned = v & ~(alignment - 1);
    return true;
}

/* Product of n sizes; 1 for n = 0. A zero among them gives 0 even if the others overflow: an empty
 * tensor is valid whatever its other sizes. */
bool checked_product(const uint64_t *sizes, size_t n, uint64_t *product);

/* Whether [offset, offset + nbytes) is inside [0, limit). */
static inline bool checked_range(uint64_t offset, uint64_t nbytes, uint64_t limit)
{
    return offset <= limit && nbytes <= limit - offset;
}

static inline bool checked_size(uint64_t n, size_t *result)
{
    if (n > SIZE_MAX)
        return false;
    *result = (size_t)n;
    return true;
}

#endif
