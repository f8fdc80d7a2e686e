/* hdf5_build.h: converts the records of hdf5_protocol.h to a catalogue. The records are not
 * trusted: sizes are bounded, locations must be inside the file and must not overlap, and grids
 * must contain each chunk once.
 *
 *     hdf5_input in = {.read = fn, .ctx = c, .end_bytes = super.end_bytes, .separator = "."};
 *     st = hdf5_build(&f, &in, cat, err);      // cat is not sealed
 */
#ifndef FSDPCK_FORMATS_HDF5_BUILD_H
#define FSDPCK_FORMATS_HDF5_BUILD_H

#include "formats/format.h"
#include "formats/hdf5/hdf5_file.h"

typedef struct hdf5_input {
    /* *got is less than nbytes only at the end. */
    fsdpck_status (*read)(void *ctx, void *dst, uint64_t nbytes, uint64_t *got, fsdpck_error *err);
    void *ctx;
    uint64_t end_bytes;        /* of the file */
    bool is_checked_elsewhere; /* object headers have checksums: a superblock of version 2 or 3 */
    const char *library;       /* its name and version, for messages; may be NULL */
    const char *separator;     /* between the names of groups and datasets */
    bool fills;                /* as in hdf5_file */
    /* Receives errors of a single dataset; the others are still read. NULL: returned to the caller.
     */
    const open_request *tell;
    logger log;
} hdf5_input;

/* File 0 of the catalogue is the file, added by the caller. An end before END is BADINPUT with
 * H5-DAMAGED. */
fsdpck_status hdf5_build(hdf5_file *f, const hdf5_input *in, catalogue *cat,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Elements of this dataset were never written and have no value: BADINPUT with H5-UNWRITTEN. */
fsdpck_status hdf5_error_unwritten(const hdf5_file *f, const hdf5_dataset *d, fsdpck_error *err);

#endif
