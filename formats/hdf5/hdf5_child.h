/* hdf5_child.h: the part of reading that uses libhdf5. Implemented by hdf5_walk_hdf5.c, or
 * hdf5_walk_none.c without libhdf5. */
#ifndef FSDPCK_FORMATS_HDF5_CHILD_H
#define FSDPCK_FORMATS_HDF5_CHILD_H

#include <stdbool.h>

/* Whether this build has libhdf5. */
bool hdf5_child_built(void);

/* A child_fn (base/child.h): opens in_fd with libhdf5, walks all of it, and writes the records of
 * hdf5_protocol.h to out_fd. False if it could not report its failure. */
bool hdf5_child_run(void *ctx, int in_fd, int out_fd);

#endif
