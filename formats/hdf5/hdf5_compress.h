/* hdf5_compress.h: the HDF5 writer with compression: layout() for opt->gzip_level, which makes the
 * target a compressed one (state/filter.h).
 *
 * The image is all tensors, each at a multiple of 64 bytes; a cell is a chunk of HDF5, or all of a
 * tensor that is contiguous. libhdf5 keeps the file open, in memory, from here to pack.finish, and
 * assigns the location of each chunk when its size is known.
 */
#ifndef FSDPCK_FORMATS_HDF5_COMPRESS_H
#define FSDPCK_FORMATS_HDF5_COMPRESS_H

#include "formats/format.h"

fsdpck_status hdf5_compress(target *t, const writer_options *opt,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
