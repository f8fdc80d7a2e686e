/* A build without HDF5. */
#include "formats/hdf5/hdf5_write.h"

fsdpck_status hdf5_describe(const hdf5_description *d, uint64_t *offsets, fsdpck_error *err)
{
    (void)d;
    (void)offsets;
    const fsdpck_status st =
        error_set(err, FSDPCK_UNSUPPORTED, "", "HDF5 cannot be written: built without HDF5");
    error_next(err, "write a .safetensors or .pt file, or build with -DFSDPCK_WITH_HDF5=ON");
    return st;
}
