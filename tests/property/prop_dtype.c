/* Conversion and comparison of every dtype against a scalar reference: all values of 8 and 16 bits
 * (compared: all pairs of 8 bits), random ones of 32 and 64, which lie near each other's limits.
 *
 *     prop_dtype [ROUNDS [SEED]]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/cast.h"
#include "tests/support/dtype_reference.h"

enum { NELEMS = 1 << 16 };

static uint64_t state;

static uint64_t draw(void)
{
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Half of them in the range of the narrow types, half of those a tie or next to one. */
static uint64_t draw_float(unsigned mantissa, uint64_t bias)
{
    uint64_t v = draw() >> (mantissa == 52 ? 0 : 32);
    const uint64_t how = draw();
    const unsigned drop = mantissa - 12 + (unsigned)(how >> 8) % 13;
    if (how & 1)
        return v;
    v = (v & ((UINT64_C(1) << mantissa) - 1)) | (bias - 40 + (how >> 16) % 80) << mantissa;
    if (how & 2)
        v = (v >> drop << drop) + (how & 4 ? UINT64_C(1) << (drop - 1) : 0) + (how >> 3 & 1) -
            (how >> 4 & 1);
    return how & 32 ? v | UINT64_C(1) << (mantissa == 52 ? 63 : 31) : v;
}

static void fill(dtype d, uint8_t *to, uint64_t n)
{
    const size_t itemsize = dtype_get(d)->itemsize_bytes;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t v = d == DTYPE_FLOAT64   ? draw_float(52, 1023)
                           : d == DTYPE_FLOAT32 ? draw_float(23, 127)
                           : itemsize <= 2      ? i
                                                : draw();
        memcpy(to + i * itemsize, &v, itemsize < 8 ? itemsize : 8);
        if (itemsize == 16)
            memcpy(to + i * itemsize + 8, &v, 8);
    }
}

static void check_compare(dtype d, uint8_t *a, uint8_t *b)
{
    static const compare_rule rules[] = {{0, 0}, {1e-3, 0}, {0, 1e-2}, {1, 1}};
    const size_t itemsize = dtype_get(d)->itemsize_bytes;
    fill(d, a, NELEMS);
    if (itemsize == 1) { /* all pairs */
        for (unsigned i = 0; i < NELEMS; i++) {
            a[i] = (uint8_t)i;
            b[i] = (uint8_t)(i >> 8);
        }
    } else {
        memcpy(b, a, NELEMS * itemsize);
        for (unsigned i = 0; i < NELEMS; i += 1 + (unsigned)(draw() % 5))
            b[i * itemsize + draw() % itemsize] ^= (uint8_t)(1 << draw() % 8);
    }
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        reference_check_compare(d, &rules[i], a, b, NELEMS - 100 * i);
}

int main(int argc, char **argv)
{
    const uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 2;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    unsigned pairs = 0;
    uint8_t *a = malloc(16 * NELEMS), *b = malloc(16 * NELEMS);
    if (a == NULL || b == NULL)
        return 1;
    for (uint64_t round = 0; round < rounds; round++) {
        for (int d = DTYPE_NONE + 1; d < DTYPE_COUNT; d++) {
            check_compare((dtype)d, a, b);
            for (int to = DTYPE_NONE + 1; to < DTYPE_COUNT; to++) {
                if (!cast_supported((dtype)d, (dtype)to))
                    continue;
                fill((dtype)d, a, NELEMS);
                reference_check_cast((dtype)d, (dtype)to, a, NELEMS);
                pairs++;
            }
        }
    }
    free(a);
    free(b);
    printf("%u conversions of %d values\n", pairs, NELEMS);
    return pairs > 0 ? 0 : 1;
}
