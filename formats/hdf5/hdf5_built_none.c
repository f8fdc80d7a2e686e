/* A build without HDF5. */
#include "formats/hdf5/hdf5.h"

const char *hdf5_built_state(void)
{
    return "built without HDF5";
}
