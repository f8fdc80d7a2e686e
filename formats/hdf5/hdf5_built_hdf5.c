#include <hdf5.h>

#include "formats/hdf5/hdf5.h"

#define TEXT_OF(x)   #x
#define NUMBER_OF(x) TEXT_OF(x)

const char *hdf5_built_state(void)
{
    return "HDF5 " NUMBER_OF(H5_VERS_MAJOR) "." NUMBER_OF(H5_VERS_MINOR) "." NUMBER_OF(
        H5_VERS_RELEASE);
}
