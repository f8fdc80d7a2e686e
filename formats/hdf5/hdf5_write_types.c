#include "formats/hdf5/hdf5_write_internal.h"

hdf5_storage hdf5_stored_as(dtype d)
{
    switch (d) {
    case DTYPE_BOOL:
        return HDF5_AS_ENUM;
    case DTYPE_COMPLEX32:
    case DTYPE_COMPLEX64:
    case DTYPE_COMPLEX128:
    case DTYPE_BCOMPLEX32:
        return HDF5_AS_COMPLEX;
    case DTYPE_FLOAT8_E4M3FN:   /* finite values that HDF5 reads as infinity and NaN */
    case DTYPE_FLOAT8_E4M3FNUZ: /* also, its only NaN is HDF5's -0 */
    case DTYPE_FLOAT8_E5M2FNUZ:
    case DTYPE_FLOAT8_E8M0FNU:   /* neither sign nor mantissa */
    case DTYPE_FLOAT4_E2M1FN_X2: /* two a byte */
    case DTYPE_BITS8:
    case DTYPE_BITS16:
    case DTYPE_BITS1X8:
    case DTYPE_BITS2X4:
    case DTYPE_BITS4X2:
        return HDF5_AS_BYTES;
    default:
        return HDF5_AS_NUMBER;
    }
}
