/* st_lost.h: tensors that a missing or cut safetensors file costs, for its error. */
#ifndef FSDPCK_ST_LOST_H
#define FSDPCK_ST_LOST_H

#include "base/text.h"
#include "formats/safetensors/hf_index.h"
#include "formats/safetensors/st_files.h"

/* The number of a file that no index and no list has. */
#define ST_LOST_MISSING SIZE_MAX

/* Appends "26 of 29 tensors are whole (1234 bytes), 3 tensors are lost or cut: 'a', 'b', 'c'" about file `index`, or with
 * ST_LOST_MISSING about the files of the index that are not among `s`. The headers of `s` are read, those of cut files
 * too. Appends nothing if neither the index, which may be NULL, nor all headers have the names. */
void st_lost_describe(const st_files *s, const void *hf_index_or_null, size_t index,
                      text_buf *text);
/* The same of the missing files of an index: opens the others. */
void st_lost_describe_missing(const open_request *req, const hf_index *ix, text_buf *text);

#endif
