/* hdf5_objects.h: objects that are no tensors, as the JSON text that the writer keeps in the
 * attribute "objects" of the root group: {"optim.param_groups.0.lr": 0.001, ...}, by flat key.
 *
 *     RETURN_IF(hdf5_objects_write(&target->cat, &json, err));        // writing
 *     RETURN_IF(hdf5_objects_read(cat, json, json_nbytes, err));    // reading, before catalogue_seal
 *
 * JSON has arrays alone: tuples come back as lists. A number with a point or an exponent is a float,
 * any other an int.
 */
#ifndef FSDPCK_FORMATS_HDF5_OBJECTS_H
#define FSDPCK_FORMATS_HDF5_OBJECTS_H

#include "state/catalogue.h"

#define HDF5_OBJECTS_ATTRIBUTE "objects"
/* Of the text: writer and reader hold to it. */
#define HDF5_OBJECTS_NBYTES_MAX ((size_t)12 << 20)

/* Whether JSON can say it: None, bool, int of 64 bits, finite float, UTF-8 text, lists and tuples of
 * these (both become arrays), dicts of these with texts as keys; at most 48 deep. */
bool hdf5_holds_object(const value_pool *pool, value v);

/* All objects of the catalogue as one JSON object by flat key; nothing where there are none.
 * UNSUPPORTED where two have one name (KEY-DUP), one a name that is no UTF-8, or the text would be
 * too long. */
fsdpck_status hdf5_objects_write(const catalogue *cat, text_buf *json,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds an object for each member, its content loaded; `json` is not trusted. BADINPUT with `finding`
 * where it is no such text, or names an object twice. */
fsdpck_status hdf5_objects_read(catalogue *cat, const char *json, size_t nbytes,
                                fsdpck_finding_id finding, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
