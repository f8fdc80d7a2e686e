#include <criterion/criterion.h>
#include <string.h>

#include "formats/hdf5/hdf5_type.h"

static hdf5_number integer(unsigned size, unsigned sign)
{
    return (hdf5_number){
        .class = HDF5_TYPE_INTEGER, .sign = (uint8_t)sign, .size = size, .precision = 8 * size};
}

static hdf5_number real(unsigned size, unsigned exponent, uint64_t bias)
{
    return (hdf5_number){.class = HDF5_TYPE_FLOAT,
                         .norm = HDF5_NORM_IMPLIED,
                         .size = size,
                         .precision = 8 * size,
                         .sign_at = 8 * size - 1,
                         .exponent_at = 8 * size - 1 - exponent,
                         .exponent_size = exponent,
                         .mantissa_size = 8 * size - 1 - exponent,
                         .bias = bias};
}

static dtype dtype_of(hdf5_number n, const char *named)
{
    bool swap;
    const hdf5_type t = {.number = n};
    return hdf5_type_dtype(&t, named, strlen(named), &swap);
}

Test(hdf5_type, numbers_by_their_bits)
{
    cr_assert_eq(dtype_of(integer(1, 0), ""), DTYPE_UINT8);
    cr_assert_eq(dtype_of(integer(8, 1), ""), DTYPE_INT64);
    cr_assert_eq(dtype_of(integer(3, 1), ""), DTYPE_NONE);
    cr_assert_eq(dtype_of(integer(16, 1), ""), DTYPE_NONE);
    cr_assert_eq(dtype_of(real(4, 8, 127), ""), DTYPE_FLOAT32);
    cr_assert_eq(dtype_of(real(8, 11, 1023), ""), DTYPE_FLOAT64);
    cr_assert_eq(dtype_of(real(2, 5, 15), ""), DTYPE_FLOAT16);
    cr_assert_eq(dtype_of(real(2, 8, 127), ""), DTYPE_BFLOAT16);
    cr_assert_eq(dtype_of(real(1, 4, 7), ""), DTYPE_FLOAT8_E4M3FN);
    cr_assert_eq(dtype_of(real(1, 4, 8), ""), DTYPE_FLOAT8_E4M3FNUZ);
    cr_assert_eq(dtype_of(real(1, 5, 15), ""), DTYPE_FLOAT8_E5M2);
    cr_assert_eq(dtype_of(real(1, 5, 16), ""), DTYPE_FLOAT8_E5M2FNUZ);
    cr_assert_eq(dtype_of(real(4, 8, 126), ""), DTYPE_NONE);
    hdf5_number odd = integer(4, 1);
    odd.precision = 17;
    cr_assert_eq(dtype_of(odd, ""), DTYPE_NONE);
    odd = real(4, 8, 127);
    odd.norm = HDF5_NORM_OTHER;
    cr_assert_eq(dtype_of(odd, ""), DTYPE_NONE);
}

Test(hdf5_type, a_name_tells_what_bytes_are)
{
    const hdf5_number opaque = {.class = HDF5_TYPE_OPAQUE, .size = 2};
    cr_assert_eq(dtype_of(integer(1, 0), "float8_e8m0fnu"), DTYPE_FLOAT8_E8M0FNU);
    cr_assert_eq(dtype_of(integer(2, 0), "torch.bfloat16"), DTYPE_BFLOAT16);
    cr_assert_eq(dtype_of(opaque, "bfloat16"), DTYPE_BFLOAT16);
    cr_assert_eq(dtype_of(opaque, ""), DTYPE_NONE);
    cr_assert_eq(dtype_of(real(1, 4, 7), "float8_e4m3fnuz"), DTYPE_FLOAT8_E4M3FNUZ);
}

Test(hdf5_type, a_name_that_the_type_contradicts_is_none)
{
    cr_assert_eq(dtype_of(integer(1, 0), "bfloat16"), DTYPE_UINT8);
    cr_assert_eq(dtype_of(integer(4, 1), "float32"), DTYPE_INT32);
    cr_assert_eq(dtype_of(real(4, 8, 127), "int32"), DTYPE_FLOAT32);
    cr_assert_eq(dtype_of(real(2, 5, 15), "words"), DTYPE_FLOAT16);
}

Test(hdf5_type, bool_and_complex_as_h5py_has_them)
{
    bool swap;
    hdf5_type b = {.number = {.class = HDF5_TYPE_ENUM, .size = 1},
                   .nmembers = 2,
                   .names = {"FALSE", "TRUE"},
                   .values = {0, 1}};
    cr_assert_eq(hdf5_type_dtype(&b, "", 0, &swap), DTYPE_BOOL);
    b.values[1] = 2;
    cr_assert_eq(hdf5_type_dtype(&b, "", 0, &swap), DTYPE_NONE);
    hdf5_type c = {.number = {.class = HDF5_TYPE_COMPOUND, .size = 8},
                   .nmembers = 2,
                   .names = {"r", "i"},
                   .values = {0, 4},
                   .members = {real(4, 8, 127), real(4, 8, 127)}};
    cr_assert_eq(hdf5_type_dtype(&c, "", 0, &swap), DTYPE_COMPLEX64);
    cr_assert_not(swap);
    c.members[0].order = c.members[1].order = HDF5_ORDER_BE;
    cr_assert_eq(hdf5_type_dtype(&c, "", 0, &swap), DTYPE_COMPLEX64);
    cr_assert(swap);
    c.members[0].order = HDF5_ORDER_LE;
    cr_assert_eq(hdf5_type_dtype(&c, "", 0, &swap), DTYPE_NONE);
    c.members[1].order = HDF5_ORDER_LE;
    c.values[1] = 3;
    cr_assert_eq(hdf5_type_dtype(&c, "", 0, &swap), DTYPE_NONE);
}

/* Keras has its own names, so this may be no dtype of torch. */
Test(hdf5_type, a_name_of_torch_is_one)
{
    bool swap;
    const hdf5_type t = {.number = integer(1, 0)};
    cr_assert_eq(hdf5_type_dtype(&t, "torch.bool", 10, &swap), DTYPE_BOOL);
    cr_assert_eq(hdf5_type_dtype(&t, "torch.nonsense", 14, &swap), DTYPE_NONE);
    cr_assert_eq(hdf5_type_dtype(&t, "nonsense", 8, &swap), DTYPE_UINT8);
    cr_assert(hdf5_type_is_misnamed(&t, "torch.nonsense", 14));
    cr_assert_not(hdf5_type_is_misnamed(&t, "torch.bool", 10));
    cr_assert_not(hdf5_type_is_misnamed(&t, "nonsense", 8));
}

Test(hdf5_type, a_name_is_not_looked_at_where_the_type_says_all)
{
    cr_assert_eq(dtype_of(real(4, 8, 127), "torch.nonsense"), DTYPE_FLOAT32);
    cr_assert_eq(dtype_of(integer(4, 1), "torch.<f4"), DTYPE_INT32);
    cr_assert_eq(dtype_of(integer(8, 0), "torch.nonsense"), DTYPE_UINT64);
}

Test(hdf5_type, byte_order)
{
    bool swap;
    hdf5_type t = {.number = integer(4, 0)};
    t.number.order = HDF5_ORDER_BE;
    cr_assert_eq(hdf5_type_dtype(&t, "", 0, &swap), DTYPE_UINT32);
    cr_assert(swap);
    t.number = integer(1, 0);
    t.number.order = HDF5_ORDER_BE;
    cr_assert_eq(hdf5_type_dtype(&t, "", 0, &swap), DTYPE_UINT8);
    cr_assert_not(swap);
    t.number = real(8, 11, 1023);
    t.number.order = HDF5_ORDER_OTHER;
    cr_assert_eq(hdf5_type_dtype(&t, "", 0, &swap), DTYPE_NONE);
}
