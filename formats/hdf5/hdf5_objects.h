/* hdf5_objects.h: objects other than tensors, as the JSON text in the attribute "objects" of the
 * root group: {"optim.param_groups.0.lr": 0.001, ...}, by flat key.
 *
 *     RETURN_IF(hdf5_objects_write(&target->cat, &json, err));        // writing
 *     RETURN_IF(hdf5_objects_read(cat, json, json_nbytes, err));    // reading, before catalogue_seal
 *
 * JSON has only arrays: tuples come back as lists. A number with a point or an exponent is a float,
 * any other an int.
 */
#ifndef FSDPCK_FORMATS_HDF5_OBJECTS_H
#define FSDPCK_FORMATS_HDF5_OBJECTS_H

#include "state/catalogue.h"

#define HDF5_OBJECTS_ATTRIBUTE "objects"
/* Size limit of the text, for writer and reader. */
#define HDF5_OBJECTS_NBYTES_MAX ((size_t)12 << 20)

/* Whether JSON can express it: None, bool, int of 64 bits, finite float, UTF-8 text, lists and
 * tuples of these (both become arrays), dicts of these with texts as keys; at most 48 deep. */
bool hdf5_holds_object(const value_pool *pool, value v);

/* All objects of the catalogue as one JSON object by flat key; empty if there are none. UNSUPPORTED
 * if two have the same name (KEY-DUP), a name is not UTF-8, or the text is too long. */
fsdpck_status hdf5_objects_write(const catalogue *cat, text_buf *json,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds an object for each member, its content loaded; `json` is not trusted. BADINPUT with
 * `finding` if the text is invalid or contains an object twice. */
fsdpck_status hdf5_objects_read(catalogue *cat, const char *json, size_t nbytes,
                                fsdpck_finding_id finding, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
