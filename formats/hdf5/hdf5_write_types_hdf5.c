#include <hdf5.h>

#include "formats/hdf5/hdf5_write_internal.h"

/* A float type by its bits: sign, exponent and mantissa from the top. */
typedef struct float_bits {
    size_t nbytes, exponent, mantissa, bias;
} float_bits;

/* The same that HDF5 2.0 predefines as H5T_FLOAT_BFLOAT16LE and H5T_FLOAT_F8E5M2; float16 is the
 * H5T_IEEE_F16LE of 1.14. */
static const float_bits half = {2, 5, 10, 15};
static const float_bits bfloat16 = {2, 8, 7, 127};
static const float_bits float8_e5m2 = {1, 5, 2, 15};

static hid_t new_float(float_bits f)
{
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    const size_t bits = 8 * f.nbytes;
    if (type >= 0 && H5Tset_fields(type, bits - 1, f.mantissa, f.exponent, 0, f.mantissa) >= 0 &&
        H5Tset_ebias(type, f.bias) >= 0 && H5Tset_precision(type, bits) >= 0 &&
        H5Tset_size(type, f.nbytes) >= 0)
        return type;
    if (type >= 0)
        (void)H5Tclose(type);
    return H5I_INVALID_HID;
}

static hid_t new_bool(void)
{
    const int8_t no = 0;
    const int8_t yes = 1;
    const hid_t type = H5Tenum_create(H5T_STD_I8LE);
    if (type >= 0 && H5Tenum_insert(type, "FALSE", &no) >= 0 &&
        H5Tenum_insert(type, "TRUE", &yes) >= 0)
        return type;
    if (type >= 0)
        (void)H5Tclose(type);
    return H5I_INVALID_HID;
}

/* Takes `part`. */
static hid_t new_complex(hid_t part)
{
    hid_t type = H5I_INVALID_HID;
    if (part < 0)
        return type;
    const size_t nbytes = H5Tget_size(part);
    type = H5Tcreate(H5T_COMPOUND, 2 * nbytes);
    if (type >= 0 &&
        (H5Tinsert(type, "r", 0, part) < 0 || H5Tinsert(type, "i", nbytes, part) < 0)) {
        (void)H5Tclose(type);
        type = H5I_INVALID_HID;
    }
    (void)H5Tclose(part);
    return type;
}

int64_t hdf5_type_new(dtype d)
{
    if (hdf5_stored_as(d) == HDF5_AS_BYTES)
        return H5Tcopy(dtype_get(d)->itemsize_bytes == 1 ? H5T_STD_U8LE : H5T_STD_U16LE);
    switch (d) {
    case DTYPE_BOOL:
        return new_bool();
    case DTYPE_UINT8:
        return H5Tcopy(H5T_STD_U8LE);
    case DTYPE_INT8:
        return H5Tcopy(H5T_STD_I8LE);
    case DTYPE_UINT16:
        return H5Tcopy(H5T_STD_U16LE);
    case DTYPE_INT16:
        return H5Tcopy(H5T_STD_I16LE);
    case DTYPE_UINT32:
        return H5Tcopy(H5T_STD_U32LE);
    case DTYPE_INT32:
        return H5Tcopy(H5T_STD_I32LE);
    case DTYPE_UINT64:
        return H5Tcopy(H5T_STD_U64LE);
    case DTYPE_INT64:
        return H5Tcopy(H5T_STD_I64LE);
    case DTYPE_FLOAT16:
        return new_float(half);
    case DTYPE_BFLOAT16:
        return new_float(bfloat16);
    case DTYPE_FLOAT32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case DTYPE_FLOAT64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case DTYPE_FLOAT8_E5M2:
        return new_float(float8_e5m2);
    case DTYPE_COMPLEX32:
        return new_complex(new_float(half));
    case DTYPE_BCOMPLEX32:
        return new_complex(new_float(bfloat16));
    case DTYPE_COMPLEX64:
        return new_complex(H5Tcopy(H5T_IEEE_F32LE));
    case DTYPE_COMPLEX128:
        return new_complex(H5Tcopy(H5T_IEEE_F64LE));
    default:
        return H5I_INVALID_HID;
    }
}
