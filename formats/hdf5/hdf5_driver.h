/* hdf5_driver.h: libhdf5 on a descriptor, for the files that use libhdf5; none of it without.
 *
 *     static const uint8_t nowhere[1];
 *     hdf5_driver d = {.fd = fd, .nowhere = nowhere, .raw = take_place, .ctx = &place};
 *     const hid_t access = (hid_t)hdf5_driver_access(&d);
 *     file = H5Fopen(HDF5_DRIVER_PATH, H5F_ACC_RDONLY, access);
 *     H5Dread_chunk(dataset, H5P_DEFAULT, corner, &mask, nowhere);            // take_place(&place, at, nbytes)
 *     H5Dwrite_chunk(dataset, H5P_DEFAULT, mask, corner, nbytes, nowhere);    // the same
 *     H5Fclose(file);
 *     H5Pclose(access);
 *     hdf5_driver_release(&d);
 *
 * A file driver that opens nothing and needs no path. libhdf5 reads and writes `fd` by position,
 * except from or to the one address `nowhere`: then only the location is reported. The library thus
 * reports the location of each chunk without moving a byte, while global heaps, which it also
 * passes to drivers as raw data, are read and written.
 *
 * Offsets count from the start of the descriptor's file: they include a user block.
 */
#ifndef FSDPCK_FORMATS_HDF5_DRIVER_H
#define FSDPCK_FORMATS_HDF5_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

/* For H5Fopen and H5Fcreate, which require a path. No file has this path; it is absolute, so that
 * libhdf5 does not read the working folder. */
#define HDF5_DRIVER_PATH "/hdf5"

typedef struct hdf5_driver {
    int fd; /* borrowed, its position moved; H5F_ACC_TRUNC empties it */
    /* Address that stands for the bytes of a chunk; never read, one byte suffices. NULL: none. */
    const void *nowhere;
    void (*raw)(void *ctx, uint64_t offset_bytes, uint64_t nbytes);
    void *ctx;
    /* 0 at first; the errno of the first system call that failed, which libhdf5 does not report.
     * NULL: not needed. */
    int *error;
    /* Failures are reported only in *error, so that libhdf5 can close its objects. It would keep an
     * object that it cannot close and retry with a released driver. */
    bool hides_errors;
    int64_t id; /* its hid_t, registered until hdf5_driver_release; 0 at first: not registered */
} hdf5_driver;

/* Registers the driver. A new file access property list (its hid_t), to be closed; negative on
 * failure, then nothing is registered. *d is borrowed while the list and files opened with it are
 * open. */
int64_t hdf5_driver_access(hdf5_driver *d);
/* After the file was closed, not before: libhdf5 1.10.8 drops its reference to the driver before
 * it calls the driver to close the file. Does nothing if not registered. */
void hdf5_driver_release(hdf5_driver *d);

#endif
