/* hdf5_driver.h: libhdf5 on a descriptor, for the files that use libhdf5; none of it without.
 *
 *     static const uint8_t nowhere[1];
 *     hdf5_driver d = {.fd = fd, .nowhere = nowhere, .raw = take_place, .ctx = &place};
 *     const hid_t access = (hid_t)hdf5_driver_access(&d);
 *     file = H5Fopen(HDF5_DRIVER_PATH, H5F_ACC_RDONLY, access);
 *     H5Dread_chunk(dataset, H5P_DEFAULT, corner, &mask, nowhere);            // take_place(&place, at, nbytes)
 *     H5Dwrite_chunk(dataset, H5P_DEFAULT, mask, corner, nbytes, nowhere);    // the same
 *
 * A file driver that opens nothing and needs no path. What libhdf5 reads and writes goes to `fd` by
 * position, but for what would go from or to the one address `nowhere`: of that only the place is
 * told. So the library says where each chunk lies, or shall lie, without a byte being moved, while
 * global heaps, which it gives to drivers as raw data too, are read and written.
 *
 * Places count from the begin of the descriptor's file: a user block is in them.
 */
#ifndef FSDPCK_FORMATS_HDF5_DRIVER_H
#define FSDPCK_FORMATS_HDF5_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

/* For H5Fopen and H5Fcreate, which want a path. Nobody looks for it; it is absolute, so that libhdf5
 * does not ask for the working folder. */
#define HDF5_DRIVER_PATH "/hdf5"

typedef struct hdf5_driver {
    int fd; /* borrowed, its position moved; H5F_ACC_TRUNC empties it */
    /* What is given for the bytes of a chunk; never looked at, one byte is enough. NULL: there is none. */
    const void *nowhere;
    void (*raw)(void *ctx, uint64_t offset_bytes, uint64_t nbytes);
    void *ctx;
    /* 0 at first; the errno of the first system call that failed, which libhdf5 does not tell. NULL:
     * nobody asks. */
    int *error;
    /* Only *error tells of failures, so that libhdf5 can close what it has open. What it cannot close
     * it keeps, to try again with a driver that is gone by then. */
    bool hides_errors;
} hdf5_driver;

/* A new file access property list (its hid_t), to be closed; negative where it failed. *d is borrowed
 * while it and files opened with it are open. */
int64_t hdf5_driver_access(const hdf5_driver *d);

#endif
