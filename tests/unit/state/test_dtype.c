#include <criterion/criterion.h>
#include <string.h>

#include "state/dtype.h"

static dtype from_name(const char *name)
{
    return dtype_from_name(name, strlen(name));
}

static dtype from_storage(const char *name)
{
    return dtype_from_storage_class(name, strlen(name));
}

static dtype from_code(const char *code)
{
    return dtype_from_safetensors(code, strlen(code));
}

Test(dtype, every_name_of_the_table_leads_back_to_its_row)
{
    for (int d = DTYPE_NONE + 1; d < DTYPE_COUNT; d++) {
        const dtype_info *info = dtype_get((dtype)d);
        cr_assert_neq(info->itemsize_bytes, 0, "row %d is missing", d);
        cr_assert_eq(info->itemsize_bytes % info->swap_nbytes, 0, "%s", info->name);
        cr_expect_eq((int)from_name(info->name), d, "%s", info->name);
        if (info->storage_class != NULL)
            cr_expect_eq((int)from_storage(info->storage_class), d, "%s", info->name);
        if (info->safetensors != NULL)
            cr_expect_eq((int)from_code(info->safetensors), d, "%s", info->name);
    }
}

Test(dtype, sizes_codes_and_swap_units)
{
    static const struct {
        const char *name, *code;
        unsigned itemsize, swap;
    } rows[] = {
        {"float32", "F32", 4, 4},
        {"bfloat16", "BF16", 2, 2},
        {"complex64", "C64", 8, 4},
        {"complex128", NULL, 16, 8},
        {"complex32", NULL, 4, 2},
        {"bool", "BOOL", 1, 1},
        {"float8_e8m0fnu", "F8_E8M0", 1, 1},
        {"float4_e2m1fn_x2", "F4", 1, 1},
        {"uint64", "U64", 8, 8},
        {"bits16", NULL, 2, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const dtype_info *info = dtype_get(from_name(rows[i].name));
        cr_expect_str_eq(info->name, rows[i].name);
        cr_expect_eq(info->itemsize_bytes, rows[i].itemsize, "%s", info->name);
        cr_expect_eq(info->swap_nbytes, rows[i].swap, "%s", info->name);
        if (rows[i].code == NULL)
            cr_expect_null(info->safetensors, "%s", info->name);
        else
            cr_expect_str_eq(info->safetensors, rows[i].code);
    }
}

Test(dtype, safetensors_ranks_follow_the_official_order)
{
    static const char *const order[] = {
        "BOOL",        "F4",          "U8",  "I8",  "F8_E5M2", "F8_E4M3", "F8_E8M0",
        "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16", "F16",     "BF16",    "I32",
        "U32",         "F32",         "C64", "F64", "I64",     "U64",
    };
    for (size_t i = 1; i < sizeof order / sizeof order[0]; i++)
        cr_expect_lt(dtype_get(from_code(order[i - 1]))->safetensors_rank,
                     dtype_get(from_code(order[i]))->safetensors_rank, "%s", order[i]);
}

Test(dtype, aliases_and_strangers)
{
    cr_expect_eq(from_name("float"), DTYPE_FLOAT32);
    cr_expect_eq(from_name("long"), DTYPE_INT64);
    cr_expect_eq(from_name("half"), DTYPE_FLOAT16);
    cr_expect_eq(from_name("none"), DTYPE_NONE);
    cr_expect_eq(from_name("qint8"), DTYPE_NONE);
    cr_expect_eq(from_name(""), DTYPE_NONE);
    cr_expect_eq(from_code("f32"), DTYPE_NONE);
    cr_expect_eq(from_code("F3"), DTYPE_NONE);
    cr_expect_eq(dtype_from_safetensors("F32x", 3), DTYPE_FLOAT32);
    cr_expect_eq(from_storage("UntypedStorage"), DTYPE_NONE);
    cr_expect_str_eq(dtype_get((dtype)200)->name, "none");
}
