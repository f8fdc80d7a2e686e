/* hdf5_child.h: libhdf5's half of reading. Twins: hdf5_walk_hdf5.c, and hdf5_walk_none.c. */
#ifndef FSDPCK_FORMATS_HDF5_CHILD_H
#define FSDPCK_FORMATS_HDF5_CHILD_H

#include <stdbool.h>

/* Whether there is libhdf5 in this build. */
bool hdf5_child_built(void);

/* A child_fn (base/child.h): opens in_fd with libhdf5, walks all of it, and writes the records of
 * hdf5_protocol.h to out_fd. False where it could not even say why it failed. */
bool hdf5_child_run(void *ctx, int in_fd, int out_fd);

#endif
