/* A build without HDF5. */
#include "formats/hdf5/hdf5_write_internal.h"

fsdpck_status hdf5_describe_begin(const hdf5_description *d, uint64_t *offsets,
                                  hdf5_describe_state **s, fsdpck_error *err)
{
    (void)d;
    (void)offsets;
    *s = NULL;
    return FAIL_WITH(
        err, UNSUPPORTED, NONE, ("HDF5 cannot be written: built without HDF5"),
        (next, "write a .safetensors or .pt file, or build with -DFSDPCK_WITH_HDF5=ON"));
}

fsdpck_status hdf5_describe(const hdf5_description *d, uint64_t *offsets, fsdpck_error *err)
{
    hdf5_describe_state *s;
    return hdf5_describe_begin(d, offsets, &s, err);
}

fsdpck_status hdf5_describe_chunk(hdf5_describe_state *s, size_t tensor, const uint64_t *corner,
                                  uint32_t mask, uint64_t nbytes, uint64_t *offset_bytes,
                                  fsdpck_error *err)
{
    (void)s;
    (void)tensor;
    (void)corner;
    (void)mask;
    (void)nbytes;
    (void)offset_bytes;
    return FAIL(err, INTERNAL, NONE, "chunk described without HDF5");
}

fsdpck_status hdf5_describe_end(hdf5_describe_state *s, fsdpck_error *err)
{
    (void)s;
    (void)err;
    return FSDPCK_OK;
}
