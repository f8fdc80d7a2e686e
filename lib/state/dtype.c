#include "state/dtype.h"

#include "base/text.h"

static const dtype_info table[DTYPE_COUNT] = {
    [DTYPE_NONE] = {"none", 0, 1, DTYPE_IS_BITS, NULL, NULL, 0, 1},
    [DTYPE_BOOL] = {"bool", 1, 1, DTYPE_IS_BOOL, "BoolStorage", "BOOL", 0, 1},
    [DTYPE_UINT8] = {"uint8", 1, 1, DTYPE_IS_INT, "ByteStorage", "U8", 4, 1},
    [DTYPE_INT8] = {"int8", 1, 1, DTYPE_IS_INT, "CharStorage", "I8", 5, 1},
    [DTYPE_UINT16] = {"uint16", 2, 2, DTYPE_IS_INT, NULL, "U16", 12, 1},
    [DTYPE_INT16] = {"int16", 2, 2, DTYPE_IS_INT, "ShortStorage", "I16", 11, 1},
    [DTYPE_UINT32] = {"uint32", 4, 4, DTYPE_IS_INT, NULL, "U32", 16, 1},
    [DTYPE_INT32] = {"int32", 4, 4, DTYPE_IS_INT, "IntStorage", "I32", 15, 1},
    [DTYPE_UINT64] = {"uint64", 8, 8, DTYPE_IS_INT, NULL, "U64", 21, 1},
    [DTYPE_INT64] = {"int64", 8, 8, DTYPE_IS_INT, "LongStorage", "I64", 20, 1},
    [DTYPE_FLOAT16] = {"float16", 2, 2, DTYPE_IS_FLOAT, "HalfStorage", "F16", 13, 1},
    [DTYPE_BFLOAT16] = {"bfloat16", 2, 2, DTYPE_IS_FLOAT, "BFloat16Storage", "BF16", 14, 1},
    [DTYPE_FLOAT32] = {"float32", 4, 4, DTYPE_IS_FLOAT, "FloatStorage", "F32", 17, 1},
    [DTYPE_FLOAT64] = {"float64", 8, 8, DTYPE_IS_FLOAT, "DoubleStorage", "F64", 19, 1},
    [DTYPE_COMPLEX32] = {"complex32", 4, 2, DTYPE_IS_COMPLEX, NULL, NULL, 0, 1},
    [DTYPE_COMPLEX64] = {"complex64", 8, 4, DTYPE_IS_COMPLEX, "ComplexFloatStorage", "C64", 18, 1},
    [DTYPE_COMPLEX128] = {"complex128", 16, 8, DTYPE_IS_COMPLEX, "ComplexDoubleStorage", NULL, 0,
                          1},
    [DTYPE_BCOMPLEX32] = {"bcomplex32", 4, 2, DTYPE_IS_COMPLEX, NULL, NULL, 0, 1},
    [DTYPE_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1, 1, DTYPE_IS_FLOAT, NULL, "F8_E4M3", 7, 1},
    [DTYPE_FLOAT8_E5M2] = {"float8_e5m2", 1, 1, DTYPE_IS_FLOAT, NULL, "F8_E5M2", 6, 1},
    [DTYPE_FLOAT8_E4M3FNUZ] = {"float8_e4m3fnuz", 1, 1, DTYPE_IS_FLOAT, NULL, "F8_E4M3FNUZ", 9, 1},
    [DTYPE_FLOAT8_E5M2FNUZ] = {"float8_e5m2fnuz", 1, 1, DTYPE_IS_FLOAT, NULL, "F8_E5M2FNUZ", 10, 1},
    [DTYPE_FLOAT8_E8M0FNU] = {"float8_e8m0fnu", 1, 1, DTYPE_IS_FLOAT, NULL, "F8_E8M0", 8, 1},
    [DTYPE_FLOAT4_E2M1FN_X2] = {"float4_e2m1fn_x2", 1, 1, DTYPE_IS_FLOAT, NULL, "F4", 1, 2},
    [DTYPE_BITS8] = {"bits8", 1, 1, DTYPE_IS_BITS, NULL, NULL, 0, 1},
    [DTYPE_BITS16] = {"bits16", 2, 2, DTYPE_IS_BITS, NULL, NULL, 0, 1},
    [DTYPE_BITS1X8] = {"bits1x8", 1, 1, DTYPE_IS_BITS, NULL, NULL, 0, 1},
    [DTYPE_BITS2X4] = {"bits2x4", 1, 1, DTYPE_IS_BITS, NULL, NULL, 0, 1},
    [DTYPE_BITS4X2] = {"bits4x2", 1, 1, DTYPE_IS_BITS, NULL, NULL, 0, 1},
};

static const struct {
    const char *name;
    uint8_t dtype;
} aliases[] = {
    {"float", DTYPE_FLOAT32}, {"double", DTYPE_FLOAT64}, {"half", DTYPE_FLOAT16},
    {"long", DTYPE_INT64},    {"int", DTYPE_INT32},      {"short", DTYPE_INT16},
};

const dtype_info *dtype_get(dtype d)
{
    return &table[(unsigned)d < DTYPE_COUNT ? d : DTYPE_NONE];
}

/* The dtype with the name at offset `at` of its row. */
static dtype find(size_t at, const char *name, size_t nbytes)
{
    for (unsigned d = DTYPE_NONE + 1; d < DTYPE_COUNT; d++) {
        const char *own = *(const char *const *)((const char *)&table[d] + at);
        if (own != NULL && nbytes > 0 && own[0] == name[0] && text_is(name, nbytes, own))
            return (dtype)d;
    }
    return DTYPE_NONE;
}

dtype dtype_from_name(const char *name, size_t nbytes)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (text_is(name, nbytes, aliases[i].name))
            return (dtype)aliases[i].dtype;
    return find(offsetof(dtype_info, name), name, nbytes);
}

dtype dtype_from_storage_class(const char *name, size_t nbytes)
{
    return find(offsetof(dtype_info, storage_class), name, nbytes);
}

bool dtype_can_add(dtype d)
{
    return d == DTYPE_FLOAT64 || d == DTYPE_FLOAT32 || d == DTYPE_FLOAT16 || d == DTYPE_BFLOAT16;
}

dtype dtype_from_safetensors(const char *code, size_t nbytes)
{
    return find(offsetof(dtype_info, safetensors), code, nbytes);
}
