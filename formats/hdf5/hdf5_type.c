#include "formats/hdf5/hdf5_type.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static void get_number(hdf5_record_reader *g, hdf5_number *n)
{
    n->class = get_u8(g);
    n->order = get_u8(g);
    n->sign = get_u8(g);
    n->norm = get_u8(g);
    n->size = get_u32(g);
    n->precision = get_u32(g);
    n->offset = get_u32(g);
    n->sign_at = get_u32(g);
    n->exponent_at = get_u32(g);
    n->exponent_size = get_u32(g);
    n->mantissa_at = get_u32(g);
    n->mantissa_size = get_u32(g);
    n->bias = get_u64(g);
}

void hdf5_type_get(hdf5_record_reader *g, hdf5_type *t)
{
    memset(t, 0, sizeof *t);
    get_number(g, &t->number);
    t->nmembers = get_u32(g);
    const unsigned told = t->nmembers < 2 ? t->nmembers : 2;
    for (unsigned i = 0; i < told; i++) {
        const size_t n = get_u8(g);
        const uint8_t *name = get_bytes(g, n);
        if (name != NULL && n < sizeof t->names[i])
            memcpy(t->names[i], name, n);
        t->values[i] = get_u64(g);
    }
    for (unsigned i = 0; i < told && t->number.class == HDF5_TYPE_COMPOUND; i++)
        get_number(g, &t->members[i]);
}

/* Floating-point types by their bits: sign first, then exponent, then mantissa, no gaps. */
static const struct float_kind {
    dtype d;
    uint8_t size, exponent_size, mantissa_size;
    uint16_t bias;
} float_kinds[] = {
    {DTYPE_FLOAT16, 2, 5, 10, 15},       {DTYPE_BFLOAT16, 2, 8, 7, 127},
    {DTYPE_FLOAT32, 4, 8, 23, 127},      {DTYPE_FLOAT64, 8, 11, 52, 1023},
    {DTYPE_FLOAT8_E4M3FN, 1, 4, 3, 7},   {DTYPE_FLOAT8_E5M2, 1, 5, 2, 15},
    {DTYPE_FLOAT8_E4M3FNUZ, 1, 4, 3, 8}, {DTYPE_FLOAT8_E5M2FNUZ, 1, 5, 2, 16},
};

static dtype float_dtype(const hdf5_number *n)
{
    for (size_t i = 0; i < sizeof float_kinds / sizeof float_kinds[0]; i++) {
        const struct float_kind *k = &float_kinds[i];
        if (n->size == k->size && n->precision == 8u * k->size && n->offset == 0 &&
            n->norm == HDF5_NORM_IMPLIED && n->mantissa_at == 0 &&
            n->mantissa_size == k->mantissa_size && n->exponent_at == k->mantissa_size &&
            n->exponent_size == k->exponent_size && n->sign_at == 8u * k->size - 1 &&
            n->bias == k->bias)
            return k->d;
    }
    return DTYPE_NONE;
}

static dtype integer_dtype(const hdf5_number *n)
{
    static const dtype kinds[][2] = {
        {DTYPE_UINT8, DTYPE_INT8},
        {DTYPE_UINT16, DTYPE_INT16},
        {DTYPE_UINT32, DTYPE_INT32},
        {DTYPE_UINT64, DTYPE_INT64},
    };
    if (n->sign > 1 || n->offset != 0)
        return DTYPE_NONE;
    for (unsigned i = 0; i < 4; i++)
        if (n->size == 1u << i && n->precision == 8u << i)
            return kinds[i][n->sign];
    return DTYPE_NONE;
}

/* numpy's bool as h5py writes it. */
static bool is_bool(const hdf5_type *t)
{
    return t->number.size == 1 && t->nmembers == 2 && strcmp(t->names[0], "FALSE") == 0 &&
           t->values[0] == 0 && strcmp(t->names[1], "TRUE") == 0 && t->values[1] == 1;
}

/* numpy's complex as h5py writes it: a compound of two equal floats. */
static dtype complex_dtype(const hdf5_type *t)
{
    const hdf5_number *r = &t->members[0], *i = &t->members[1];
    const dtype part = r->class == HDF5_TYPE_FLOAT ? float_dtype(r) : DTYPE_NONE;
    if (t->nmembers != 2 || part == DTYPE_NONE || i->class != HDF5_TYPE_FLOAT ||
        float_dtype(i) != part || (r->order != i->order && r->size > 1) ||
        strcmp(t->names[0], "r") != 0 || strcmp(t->names[1], "i") != 0 || t->values[0] != 0 ||
        t->values[1] != r->size || t->number.size != 2 * r->size)
        return DTYPE_NONE;
    return part == DTYPE_FLOAT16    ? DTYPE_COMPLEX32
           : part == DTYPE_BFLOAT16 ? DTYPE_BCOMPLEX32
           : part == DTYPE_FLOAT32  ? DTYPE_COMPLEX64
           : part == DTYPE_FLOAT64  ? DTYPE_COMPLEX128
                                    : DTYPE_NONE;
}

static dtype own_dtype(const hdf5_type *t)
{
    switch (t->number.class) {
    case HDF5_TYPE_INTEGER:
        return integer_dtype(&t->number);
    case HDF5_TYPE_FLOAT:
        return float_dtype(&t->number);
    case HDF5_TYPE_ENUM:
        return is_bool(t) ? DTYPE_BOOL : DTYPE_NONE;
    case HDF5_TYPE_COMPOUND:
        return complex_dtype(t);
    default:
        return DTYPE_NONE;
    }
}

/* The dtype of the attribute, if the type does not determine the meaning of its bytes or bits. */
static bool may_be_named(const hdf5_type *t, dtype own)
{
    const unsigned class = t->number.class;
    if (class == HDF5_TYPE_OPAQUE || class == HDF5_TYPE_BITFIELD)
        return true;
    if (class == HDF5_TYPE_INTEGER)
        return own == DTYPE_UINT8 || own == DTYPE_UINT16 || own == DTYPE_UINT32;
    return class == HDF5_TYPE_FLOAT && t->number.size == 1;
}

static bool is_of_torch(const char *named, size_t named_nbytes)
{
    return named_nbytes > 6 && memcmp(named, "torch.", 6) == 0;
}

static dtype named_dtype(const char *named, size_t named_nbytes)
{
    const size_t skipped = is_of_torch(named, named_nbytes) ? 6 : 0;
    return named_nbytes > 0 ? dtype_from_name(named + skipped, named_nbytes - skipped) : DTYPE_NONE;
}

bool hdf5_type_is_misnamed(const hdf5_type *t, const char *named, size_t named_nbytes)
{
    return is_of_torch(named, named_nbytes) && may_be_named(t, own_dtype(t)) &&
           named_dtype(named, named_nbytes) == DTYPE_NONE;
}

dtype hdf5_type_dtype(const hdf5_type *t, const char *named, size_t named_nbytes, bool *swap)
{
    const unsigned order =
        t->number.class == HDF5_TYPE_COMPOUND ? t->members[0].order : t->number.order;
    const dtype own = own_dtype(t);
    dtype told = DTYPE_NONE;
    *swap = false;
    if (hdf5_type_is_misnamed(t, named, named_nbytes))
        return DTYPE_NONE;
    if (may_be_named(t, own))
        told = named_dtype(named, named_nbytes);
    const bool taken = told != DTYPE_NONE && dtype_get(told)->itemsize_bytes == t->number.size;
    const dtype d = taken ? told : own;
    *swap = order == HDF5_ORDER_BE && dtype_get(d)->swap_nbytes > 1;
    if (order == HDF5_ORDER_OTHER && t->number.size > 1)
        return DTYPE_NONE;
    /* Reversing the bytes is valid only for a number of that size. */
    if (taken && *swap && dtype_get(d)->swap_nbytes != t->number.size)
        return DTYPE_NONE;
    return d;
}

const char *hdf5_type_describe(const hdf5_type *t, char *text, size_t capacity_nbytes)
{
    static const char *const classes[] = {
        "integer",     "floating-point number", "time",     "text",
        "bitfield",    "opaque value",          "compound", "reference",
        "enumeration", "variable-length value", "array"};
    const hdf5_number *n = &t->number;
    const char *class =
        n->class < sizeof classes / sizeof classes[0] ? classes[n->class] : "unknown type";
    if (n->class == HDF5_TYPE_COMPOUND || n->class == HDF5_TYPE_ENUM)
        snprintf(text, capacity_nbytes, "%s of %" PRIu32 " member%s, %" PRIu32 " byte%s", class,
                 t->nmembers, text_plural(t->nmembers), n->size, text_plural(n->size));
    else if (n->class == HDF5_TYPE_FLOAT)
        snprintf(text, capacity_nbytes,
                 "%s of %" PRIu32 " bytes, exponent of %" PRIu32 " and mantissa of %" PRIu32
                 " bits",
                 class, n->size, n->exponent_size, n->mantissa_size);
    else
        snprintf(text, capacity_nbytes, "%s of %" PRIu32 " byte%s", class, n->size,
                 text_plural(n->size));
    return text;
}
