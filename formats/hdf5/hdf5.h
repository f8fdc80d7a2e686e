/* hdf5.h: what an HDF5 file is read by.
 *
 * libhdf5 tells where things lie, in a child process (hdf5_child.h); this process checks what it was
 * told and reads the bytes itself. Of files from elsewhere nothing else is opened, here or there.
 */
#ifndef FSDPCK_FORMATS_HDF5_H
#define FSDPCK_FORMATS_HDF5_H

#include "formats/format.h"

extern const format_reader hdf5_reader;
extern const format_writer hdf5_writer;

/* "HDF5 1.10.8" or "built without HDF5": twins. */
const char *hdf5_built_state(void);

#endif
