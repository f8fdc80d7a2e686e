#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "plan/plan.h"
#include "state/cast.h"

#define COUNT ((uint64_t)1 << 18)

typedef struct expected {
    dtype from, to;
    uint32_t crc;
    uint64_t lost;
} expected;

static const expected table[] = {
#include "tests/unit/state/cast_crcs.h"
};

/* The inputs of cast_crcs.py. */
static uint64_t mix(uint64_t i)
{
    uint64_t z = (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t shaped(uint64_t i, unsigned mantissa, uint64_t bias, unsigned drop_min)
{
    const uint64_t z = mix(i);
    const unsigned width = mantissa == 52 ? 64 : 32;
    uint64_t u = width == 64 ? z : z >> 32;
    const uint64_t exponent = bias - 37 + (z & 0xFFFF) % 70;
    if (i & 3)
        u = (u >> (width - 1) << (width - 1)) | exponent << mantissa |
            (u & ((UINT64_C(1) << mantissa) - 1));
    const uint64_t drop = drop_min + (i >> 3) % 14;
    if (i & 2)
        u = u >> drop << drop;
    if ((i & 6) == 6)
        u |= UINT64_C(1) << (drop - 1);
    if (mantissa == 52 && (u >> 52 & 0x7FF) == 0x7FF)
        u &= ~(UINT64_C(1) << 62);
    return u;
}

static uint64_t make_source(dtype d, uint8_t *to)
{
    const unsigned itemsize = dtype_get(d)->itemsize_bytes;
    const uint64_t n = itemsize == 1 ? 2048 : itemsize == 2 ? 65536 : COUNT;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t v = itemsize == 8   ? shaped(i, 52, 1023, 37)
                           : itemsize == 4 ? shaped(i, 23, 127, 8)
                                           : i;
        memcpy(to + i * itemsize, &v, itemsize);
    }
    return n;
}

Test(cast, every_pair_is_as_torch_has_it)
{
    uint8_t *src = malloc(COUNT * 8);
    uint8_t *dst = malloc(COUNT * 8);
    cr_assert(src != NULL && dst != NULL);
    cr_assert_eq(sizeof table / sizeof *table, 72);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const expected *e = &table[i];
        const uint64_t n = make_source(e->from, src);
        const uint64_t lost = cast_elements(e->from, e->to, dst, src, n);
        const uint32_t crc = crc32_update(0, dst, n * dtype_get(e->to)->itemsize_bytes);
        cr_expect_eq(crc, e->crc, "%s to %s", dtype_get(e->from)->name, dtype_get(e->to)->name);
        cr_expect_eq(lost, e->lost, "%s to %s: %lu out of range, expected %lu",
                     dtype_get(e->from)->name, dtype_get(e->to)->name, (unsigned long)lost,
                     (unsigned long)e->lost);
    }
    free(src);
    free(dst);
}

Test(cast, any_length_and_alignment_gives_the_same)
{
    uint8_t src[3000], dst[3000], whole[3000];
    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (uint8_t)mix(i);
    for (size_t n = 0; n < 700; n += 1 + n / 8) {
        memmove(src + 1, src, 4 * n);
        cast_elements(DTYPE_FLOAT32, DTYPE_BFLOAT16, whole, src + 1, n);
        for (size_t i = 0; i < n; i++)
            cast_elements(DTYPE_FLOAT32, DTYPE_BFLOAT16, dst + 3 + 2 * i, src + 1 + 4 * i, 1);
        cr_assert_eq(memcmp(whole, dst + 3, 2 * n), 0);
    }
}

/* float64, float32, float16, bfloat16 and torch's five types of 8 bits. */
Test(cast, nine_types_can_be_cast)
{
    unsigned pairs = 0;
    for (int a = 0; a < DTYPE_COUNT; a++)
        for (int b = 0; b < DTYPE_COUNT; b++) {
            const dtype_info *from = dtype_get((dtype)a), *to = dtype_get((dtype)b);
            const bool floats = from->kind == DTYPE_IS_FLOAT && to->kind == DTYPE_IS_FLOAT &&
                                from->packing == 1 && to->packing == 1;
            cr_assert_eq(cast_supported((dtype)a, (dtype)b), floats && a != b, "%s to %s",
                         from->name, to->name);
            cr_assert_eq(plan_can_cast((dtype)a, (dtype)b), floats || a == b, "%s to %s",
                         from->name, to->name);
            pairs += cast_supported((dtype)a, (dtype)b);
        }
    cr_assert_eq(pairs, 9 * 8);
}

Test(cast, unsupported_pair_writes_nothing)
{
    uint8_t dst[4] = {1, 2, 3, 4};
    cr_assert_eq(cast_elements(DTYPE_INT32, DTYPE_FLOAT32, dst, "abcd", 1), 0);
    cr_assert_eq(memcmp(dst, "\1\2\3\4", 4), 0);
}
