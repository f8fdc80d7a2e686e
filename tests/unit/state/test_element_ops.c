#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "state/element_ops.h"
#include "state/cast.h"
#include "tests/support/dtype_reference.h"

/* Values and what torch's neg makes of them: integers wrap, as two's complement has no other half of
 * its least value. */
#define NEGATED_INTS(name, d, type, least, most)                                                   \
    Test(element_ops, negated_##name)                                                              \
    {                                                                                              \
        const type values[] = {0, 1, 2, 100, (type)(most), (type)(least)};                         \
        const type wanted[] = {0, (type)-1, (type)-2, (type)-100, (type) - (most), (type)(least)}; \
        type found[6];                                                                             \
        const element_ops c = {.from = d, .to = d, .neg = true};                                   \
        memcpy(found, values, sizeof found);                                                       \
        element_ops_resolve(&c, (uint8_t *)found, 6);                                              \
        cr_assert_eq(memcmp(found, wanted, sizeof found), 0);                                      \
        const element_ops plain = {.from = d, .to = d};                                            \
        element_ops_resolve(&plain, (uint8_t *)found, 6);                                          \
        cr_assert_eq(memcmp(found, wanted, sizeof found), 0);                                      \
        cr_assert(element_ops_is_copy(&plain) && !element_ops_is_copy(&c));                        \
    }

NEGATED_INTS(int8, DTYPE_INT8, int8_t, INT8_MIN, INT8_MAX)
NEGATED_INTS(int16, DTYPE_INT16, int16_t, INT16_MIN, INT16_MAX)
NEGATED_INTS(int32, DTYPE_INT32, int32_t, INT32_MIN, INT32_MAX)
NEGATED_INTS(int64, DTYPE_INT64, int64_t, INT64_MIN, INT64_MAX)
NEGATED_INTS(uint8, DTYPE_UINT8, uint8_t, 0, UINT8_MAX)

Test(element_ops, negated_and_swapped)
{
    const uint8_t big_endian[] = {0x00, 0x00, 0x01, 0x02, 0xff, 0xff, 0xff, 0xff};
    const int32_t wanted[] = {-0x102, 1};
    uint8_t found[8];
    const element_ops c = {.from = DTYPE_INT32, .to = DTYPE_INT32, .neg = true, .swap = true};
    memcpy(found, big_endian, sizeof found);
    element_ops_resolve(&c, found, 2);
    cr_assert_eq(memcmp(found, wanted, sizeof found), 0);
}

/* Signs alone change: of zeros and NaNs too. */
Test(element_ops, negated_floats)
{
    const double values[] = {0.0, -1.5, INFINITY, (double)NAN};
    double found[4];
    const element_ops c = {.from = DTYPE_FLOAT64, .to = DTYPE_FLOAT64, .neg = true};
    memcpy(found, values, sizeof found);
    element_ops_resolve(&c, (uint8_t *)found, 4);
    for (unsigned i = 0; i < 4; i++) {
        uint64_t was, is;
        memcpy(&was, &values[i], 8);
        memcpy(&is, &found[i], 8);
        cr_assert_eq(was ^ is, UINT64_C(1) << 63);
    }
}

/* --- an added constant --- */

static const dtype can_add[] = {DTYPE_FLOAT64, DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};

static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Whether `found` is `was` plus a constant. The sum of a float32 and 1 in double, rounded to float32, is
 * the sum in float32: double has more than twice the bits. */
static bool is_sum(dtype d, const uint8_t *was, int constant, const uint8_t *found)
{
    const double x = reference_decode(d, was);
    uint64_t lost = 0;
    if (d == DTYPE_FLOAT64) {
        const double sum = x + constant, y = reference_decode(d, found);
        return isnan(sum) ? isnan(y) : sum == y && signbit(sum) == signbit(y);
    }
    const float sum = (float)(x + constant);
    return d == DTYPE_FLOAT32
               ? memcmp(&sum, found, sizeof sum) == 0 ||
                     (isnan(sum) && isnan(reference_decode(d, found)))
               : reference_cast_agrees(DTYPE_FLOAT32, (const uint8_t *)&sum, d, found, &lost);
}

/* Every element of 16 bits; of the others random bits, and exponents near that of the constant. */
Test(element_ops, added)
{
    enum { N = 65536 };
    static uint64_t was[N], found[N];
    uint64_t state = 1;
    for (unsigned k = 0; k < sizeof can_add / sizeof *can_add; k++)
        for (int constant = -1; constant <= 1; constant += 2) {
            const dtype d = can_add[k];
            const size_t size = dtype_get(d)->itemsize_bytes;
            const element_ops c = {.from = d, .to = d, .add = (int8_t)constant};
            cr_assert(!element_ops_is_copy(&c) && dtype_can_add(d));
            for (uint64_t i = 0; i < N; i++) {
                const uint64_t bits = next_random(&state);
                const double near = ldexp((double)bits, -63 - (int)(i % 64)) * (i % 2 ? 1 : -1);
                const float narrow = (float)near;
                const uint64_t from = size == 2 ? i : bits;
                memcpy((uint8_t *)was + i * size, &from, size);
                if (i % 3 != 0 && d == DTYPE_FLOAT64)
                    memcpy((uint8_t *)was + i * size, &near, size);
                if (i % 3 != 0 && d == DTYPE_FLOAT32)
                    memcpy((uint8_t *)was + i * size, &narrow, size);
            }
            memcpy(found, was, sizeof found);
            element_ops_resolve(&c, (uint8_t *)found, N);
            for (uint64_t i = 0; i < N; i++)
                cr_assert(
                    is_sum(d, (uint8_t *)was + i * size, constant, (uint8_t *)found + i * size),
                    "%s, element %u", dtype_get(d)->name, (unsigned)i);
        }
}

/* As torch gives them: (w + 1) in bfloat16 and float16. */
Test(element_ops, added_to_known_values)
{
    const uint16_t bf16[] = {0x0000, 0x8000, 0xbf80, 0x3b80, 0x3b81, 0x4380, 0x4381, 0xff80};
    const uint16_t wanted[] = {0x3f80, 0x3f80, 0x0000, 0x3f80, 0x3f81, 0x4380, 0x4382, 0xff80};
    uint16_t found[8];
    memcpy(found, bf16, sizeof found);
    element_ops_resolve(&(element_ops){.from = DTYPE_BFLOAT16, .to = DTYPE_BFLOAT16, .add = 1},
                        (uint8_t *)found, 8);
    cr_assert_eq(memcmp(found, wanted, sizeof found), 0);
    const uint16_t fp16[] = {0xbc00, 0x7bff, 0x1000, 0x1001};
    const uint16_t sums[] = {0x0000, 0x7bff, 0x3c00, 0x3c01};
    memcpy(found, fp16, sizeof fp16);
    element_ops_resolve(&(element_ops){.from = DTYPE_FLOAT16, .to = DTYPE_FLOAT16, .add = 1},
                        (uint8_t *)found, 4);
    cr_assert_eq(memcmp(found, sums, sizeof sums), 0);
}

Test(element_ops, added_after_the_other_changes)
{
    /* Big-endian 1.0 and -2.0, negated, plus 1. */
    uint8_t found[] = {0x3f, 0x80, 0x00, 0x00, 0xc0, 0x00, 0x00, 0x00};
    const float wanted[] = {0.0f, 3.0f};
    const element_ops c = {
        .from = DTYPE_FLOAT32, .to = DTYPE_FLOAT32, .neg = true, .swap = true, .add = 1};
    element_ops_resolve(&c, found, 2);
    cr_assert_eq(memcmp(found, wanted, sizeof found), 0);
}

/* A random box of 3 dims, stored in a random order of them with gaps, to another order and dtype. */
static void check_box(uint64_t *state)
{
    static uint8_t src[64 << 10], dst[64 << 10], scratch[ELEMENT_OPS_SCRATCH_NBYTES];
    static const unsigned orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const dtype from = can_add[next_random(state) % 4], to = can_add[next_random(state) % 4];
    const element_ops c = {.from = from,
                           .to = to,
                           .swap = next_random(state) % 2,
                           .neg = next_random(state) % 2,
                           .add = next_random(state) % 2 ? 1 : -1};
    const unsigned *in = orders[next_random(state) % 6], *out = orders[next_random(state) % 6];
    const size_t from_size = dtype_get(from)->itemsize_bytes,
                 to_size = dtype_get(to)->itemsize_bytes;
    uint64_t in_step = from_size, out_step = to_size;
    strided s = {.ndim = 3};
    for (unsigned d = 0; d < 3; d++)
        s.sizes[d] = 1 + next_random(state) % 17;
    for (unsigned i = 3; i-- > 0;) {
        s.src_strides[in[i]] = in_step;
        s.dst_strides[out[i]] = out_step;
        in_step *= s.sizes[in[i]] + (i == 2 ? next_random(state) % 2 : 0);
        out_step *= s.sizes[out[i]];
    }
    cr_assert(in_step <= sizeof src && out_step <= sizeof dst);
    for (uint64_t i = 0; i < in_step; i++)
        src[i] = (uint8_t)next_random(state);
    element_ops_box(&c, &s, dst, src, scratch);
    for (uint64_t x = 0; x < s.sizes[0]; x++)
        for (uint64_t y = 0; y < s.sizes[1]; y++)
            for (uint64_t z = 0; z < s.sizes[2]; z++) {
                const uint64_t at[] = {x, y, z};
                const uint8_t *p = src, *q = dst;
                uint8_t one[8], sum[8], cast[8];
                for (unsigned d = 0; d < 3; d++) {
                    p += at[d] * s.src_strides[d];
                    q += at[d] * s.dst_strides[d];
                }
                memcpy(one, p, from_size);
                element_ops_resolve(&(element_ops){from, from, c.swap, false, c.neg, 0}, one, 1);
                memcpy(sum, one, from_size);
                element_ops_resolve(&(element_ops){.from = from, .to = from, .add = c.add}, sum, 1);
                cr_assert(is_sum(from, one, c.add, sum));
                memcpy(cast, sum, to_size < from_size ? to_size : from_size);
                if (from != to)
                    cast_elements(from, to, cast, sum, 1);
                cr_assert(memcmp(cast, q, to_size) == 0 || isnan(reference_decode(to, q)));
            }
}

Test(element_ops, added_in_random_boxes)
{
    uint64_t state = 7;
    for (unsigned i = 0; i < 300; i++)
        check_box(&state);
}
