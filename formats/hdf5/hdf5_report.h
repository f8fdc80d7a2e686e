/* hdf5_report.h: the parts of the child between the two files that use libhdf5; none of it without. */
#ifndef FSDPCK_FORMATS_HDF5_REPORT_H
#define FSDPCK_FORMATS_HDF5_REPORT_H

#include "formats/hdf5/hdf5_record_writer.h"

/* Locations that the file's driver (hdf5_driver.h) reported for `nowhere`. */
typedef struct raw_extent {
    uint8_t nowhere[1];
    unsigned count;
    uint64_t offset_bytes, nbytes; /* the last */
} raw_extent;

/* One dataset, open as `dataset`, whole: DATASET with its following records, LEFT, or FAIL. False
 * after FAIL. has_fqn: the attribute "fqn" names the tensor, as in files of fsdpck. */
bool report_dataset(hdf5_record_writer *p, int64_t dataset, uint64_t address, raw_extent *place,
                    bool has_fqn, const char *name, size_t name_nbytes);
/* FAIL, with the library's message. Returns false. */
bool report_fail(hdf5_record_writer *p, hdf5_fail why, const char *name, size_t name_nbytes);
/* Text of a string attribute with one element, malloc'd; NULL if it is absent or of another form.
 * False if it exists but cannot be read: its content must not be lost. */
bool report_attribute(int64_t object, const char *name, size_t limit_nbytes, char **text,
                      size_t *nbytes);
/* LEFT for each attribute of a group or dataset that the reader does not use. False without a reader. */
bool report_attributes(hdf5_record_writer *p, int64_t object, bool by_fsdpck);

#endif
