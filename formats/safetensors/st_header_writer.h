/* st_header_writer.h: the header of a safetensors file as bytes, as the safetensors library 0.8 writes it:
 * compact JSON, `__metadata__` {"format":"pt"} first, padded with spaces to a multiple of 8.
 *
 *     st_header_writer w;
 *     st_header_write_begin(&w, &out);              // out: an empty text_buf
 *     st_header_write_metadata(&w, "DCP_VERSION", "1.0", 3);   // more of `__metadata__`, if any
 *     for each tensor, in order of the data:
 *         st_header_write_tensor(&w, name, nbytes, DTYPE_FLOAT32, ndim, shape, begin_bytes, end_bytes);
 *     RETURN_IF(st_header_write_end(&w, err));      // out: u64 N and N bytes
 *
 * The caller has checked that names are UTF-8 and unique, and that dtypes have a code.
 */
#ifndef FSDPCK_ST_HEADER_WRITER_H
#define FSDPCK_ST_HEADER_WRITER_H

#include "base/json.h"
#include "state/dtype.h"

typedef struct st_header_writer {
    text_buf *out;
    json_writer json;
    bool in_metadata; /* `__metadata__` is still open */
} st_header_writer;

void st_header_write_begin(st_header_writer *w, text_buf *out);
/* The same with another text than "pt". */
void st_header_write_begin_as(st_header_writer *w, text_buf *out, const char *format,
                              size_t nbytes);
/* Before the first tensor. */
void st_header_write_metadata(st_header_writer *w, const char *key, const char *text,
                              size_t nbytes);
/* The same for a key that may contain NUL. */
void st_header_write_pair(st_header_writer *w, const char *key, size_t key_nbytes, const char *text,
                          size_t nbytes);
/* shape is torch's; the last dim of F4 is doubled here. */
void st_header_write_tensor(st_header_writer *w, const char *name, size_t nbytes, dtype d,
                            unsigned ndim, const uint64_t *shape, uint64_t begin_bytes,
                            uint64_t end_bytes);
/* LIMIT, ST-HEADER-SIZE, if no reader would accept a header of this size. */
fsdpck_status st_header_write_end(st_header_writer *w, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
