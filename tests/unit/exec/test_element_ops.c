#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "exec/element_ops.h"

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
