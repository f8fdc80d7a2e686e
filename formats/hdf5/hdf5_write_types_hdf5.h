/* hdf5_write_types_hdf5.h: the types of the datasets that the writer makes. */
#ifndef FSDPCK_FORMATS_HDF5_WRITE_TYPES_HDF5_H
#define FSDPCK_FORMATS_HDF5_WRITE_TYPES_HDF5_H

#include <hdf5.h>

#include "state/dtype.h"

/* A type of libhdf5 to be closed, little-endian, as hdf5_stored_as says; negative: it failed. */
hid_t hdf5_type_new(dtype d);

#endif
