#include <criterion/criterion.h>

#include "base/bytes.h"
#include "base/checked.h"

Test(checked, edges)
{
    uint64_t r = 42;
    cr_assert(checked_add(UINT64_MAX - 1, 1, &r));
    cr_assert_eq(r, UINT64_MAX);
    cr_assert_not(checked_add(UINT64_MAX, 1, &r));
    r = 42;
    cr_assert_not(checked_sub(1, 2, &r));
    cr_assert_not(checked_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &r));
    cr_assert_not(checked_mul_add(UINT64_MAX, 1, 1, &r));
    cr_assert_eq(r, 42, "a failure leaves the result alone");
    cr_assert(checked_mul_add(UINT64_MAX - 1, 1, 1, &r));
    cr_assert_eq(r, UINT64_MAX);
}

Test(checked, align_up)
{
    uint64_t r = 42;
    cr_assert(checked_align_up(0, 4096, &r));
    cr_assert_eq(r, 0);
    cr_assert(checked_align_up(1, 4096, &r));
    cr_assert_eq(r, 4096);
    cr_assert(checked_align_up(4096, 4096, &r));
    cr_assert_eq(r, 4096);
    cr_assert_not(checked_align_up(UINT64_MAX - 4094, 4096, &r));
    cr_assert_eq(r, 4096);
}

Test(checked, range)
{
    cr_assert(checked_range(0, 0, 0));
    cr_assert(checked_range(10, 0, 10));
    cr_assert(checked_range(9, 1, 10));
    cr_assert_not(checked_range(9, 2, 10));
    cr_assert_not(checked_range(11, 0, 10));
    cr_assert_not(checked_range(1, UINT64_MAX, UINT64_MAX));
}

Test(checked, product)
{
    uint64_t p = 42;
    cr_assert(checked_product(NULL, 0, &p));
    cr_assert_eq(p, 1);
    cr_assert(checked_product((uint64_t[]){3, 5, 7}, 3, &p));
    cr_assert_eq(p, 105);
    cr_assert(checked_product((uint64_t[]){UINT64_MAX, UINT64_MAX, 0}, 3, &p));
    cr_assert_eq(p, 0, "an empty tensor is legal whatever its other sizes");
    p = 42;
    cr_assert_not(checked_product((uint64_t[]){UINT64_MAX, 2, 1}, 3, &p));
    cr_assert_eq(p, 42);
}

Test(bytes, order_and_alignment)
{
    uint8_t b[17];
    for (size_t shift = 0; shift < 8; shift++) {
        store_le64(b + shift, UINT64_C(0x0102030405060708));
        cr_assert_eq(b[shift], 8);
        cr_assert_eq(b[shift + 7], 1);
        cr_assert_eq(load_le64(b + shift), UINT64_C(0x0102030405060708));
        cr_assert_eq(load_le32(b + shift), 0x05060708u);
        cr_assert_eq(load_le16(b + shift), 0x0708u);
        cr_assert_eq(load_be64(b + shift), UINT64_C(0x0807060504030201));
        store_be64(b + shift, UINT64_C(0x0102030405060708));
        cr_assert_eq(b[shift], 1);
    }
}
