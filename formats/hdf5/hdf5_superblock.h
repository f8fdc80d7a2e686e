/* hdf5_superblock.h: the first words of an HDF5 file, read without libhdf5. */
#ifndef FSDPCK_FORMATS_HDF5_SUPERBLOCK_H
#define FSDPCK_FORMATS_HDF5_SUPERBLOCK_H

#include "io/file.h"

/* Largest offset to search for a signature: the end of the file. */
typedef struct hdf5_superblock {
    uint64_t at;        /* of the superblock: the size of the user block */
    uint64_t end_bytes; /* recorded end of the file, in bytes from its start */
    unsigned version;
} hdf5_superblock;

/* Finds the signature: at 0, or at 512, 1024, 2048 and so on after a user block. False if none. */
bool hdf5_superblock_find(const file *f, uint64_t *at);

/* H5-SUPER, FILE-SHORT, H5-OPEN. */
fsdpck_status hdf5_superblock_read(const file *f, hdf5_superblock *super,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
