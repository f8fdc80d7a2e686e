/* hdf5_tell.h: the parts of the child between the two files that use libhdf5; none of it without. */
#ifndef FSDPCK_FORMATS_HDF5_TELL_H
#define FSDPCK_FORMATS_HDF5_TELL_H

#include "formats/hdf5/hdf5_put.h"

/* What the file's driver (hdf5_driver.h) told of `nowhere`. */
typedef struct tell_place {
    uint8_t nowhere[1];
    unsigned count;
    uint64_t offset_bytes, nbytes; /* the last */
} tell_place;

/* One dataset, open as `dataset`, whole: DATASET and what follows it, LEFT, or FAIL. False after
 * FAIL. */
bool tell_dataset(hdf5_put *p, int64_t dataset, uint64_t address, tell_place *place,
                  const char *name, size_t name_nbytes);
/* FAIL, with what the library says. Returns false. */
bool tell_fail(hdf5_put *p, hdf5_fail why, const char *name, size_t name_nbytes);
/* Text of a string attribute with one element, malloc'd; NULL where it is none or longer. False where
 * there is one that cannot be read: what it says is not to be lost. */
bool tell_attribute(int64_t object, const char *name, size_t limit_nbytes, char **text,
                    size_t *nbytes);

#endif
