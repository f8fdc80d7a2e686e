/* hdf5.h: the reader and writer of HDF5 files.
 *
 * libhdf5 runs in a child process (hdf5_child.h) and reports the offsets; this process checks the
 * report and reads the bytes itself. Neither process opens another file.
 */
#ifndef FSDPCK_FORMATS_HDF5_H
#define FSDPCK_FORMATS_HDF5_H

#include "formats/format.h"

extern const format_reader hdf5_reader;
extern const format_writer hdf5_writer;

/* "HDF5 1.10.8" or "built without HDF5": one file for each build. */
const char *hdf5_built_state(void);

#endif
