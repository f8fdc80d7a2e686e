/* st_header.h: strict reading of the header of a safetensors stream.
 *
 * A stream is u64 N, N bytes of JSON, then the tensors' bytes; it may be a file or the tail of one
 * (torch can put one into a .distcp file). Any ambiguity between readers is an error.
 *
 *     st_input in = {.read = fn, .ctx = c, .base_offset_bytes = 0, .nbytes = file_nbytes};
 *     st_header h;
 *     RETURN_IF(st_header_read(&in, budget, &h, err));       // few reads: one for a small header
 *     for (size_t i = 0; i < h.entries.count; i++) {
 *         const st_entry *e = VEC_AT(&h.entries, const st_entry, i);    // in order of their bytes
 *         st_header_name(&h, e, &nbytes), st_header_shape(&h, e)
 *         // elements lie at h.data_offset_bytes + e->begin_bytes, row-major, little-endian
 *     }
 *     st_header_release(&h);
 *
 * Rules (safetensors 0.8): N at most 100,000,000; UTF-8 without NUL or byte order mark; one JSON
 * object at the start, followed only by spaces; names unique after unescaping; `__metadata__` maps
 * strings to strings; the entries' bytes follow their dtype and shape and tile the data: no gap, no
 * overlap, no rest.
 *
 * Errors: BADINPUT with FILE-SHORT, ST-HEADER-SIZE, ST-UTF8, ST-JSON, ST-DUPKEY, ST-META,
 * ST-NUMBER, ST-SHAPE, ST-OFFSET, ST-TRAILING, ST-LENGTH, ST-DTYPE, ST-ENTRY; UNSUPPORTED with
 * ST-DTYPE for a dtype that torch lacks; LIMIT with ST-SHAPE for more dims than torch allows.
 * Offsets count from the start of the file.
 */
#ifndef FSDPCK_FORMATS_COMMON_ST_HEADER_H
#define FSDPCK_FORMATS_COMMON_ST_HEADER_H

#include "base/alloc.h"
#include "state/box.h"
#include "state/dtype.h"

#define ST_HEADER_NBYTES_MAX UINT64_C(100000000)

typedef fsdpck_status (*st_read_fn)(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                                    fsdpck_error *err);

typedef struct st_input {
    st_read_fn read; /* offsets count from the start of the file, not of the stream */
    void *ctx;
    uint64_t base_offset_bytes; /* start of the stream in the file */
    uint64_t nbytes;            /* of the stream */
    bool may_end_early;         /* the header is wanted, though the data are incomplete */
} st_input;

typedef struct st_entry {
    uint32_t name; /* in st_header.names */
    uint8_t dtype;
    uint8_t ndim;
    uint64_t dims_at;
    uint64_t begin_bytes; /* from the beginning of the data */
    uint64_t end_bytes;
} st_entry;

typedef struct st_header {
    strtab names;
    vec entries; /* st_entry, by begin_bytes */
    vec dims;    /* uint64_t; torch's shapes: the last dim of F4 counts bytes */
    strtab metadata_keys;
    strtab metadata_texts;
    vec metadata;               /* uint32_t: text of each key, by the key's id */
    uint64_t data_offset_bytes; /* in the file */
    uint64_t data_nbytes;
    uint64_t extra_fields; /* unknown fields of entries: ignored, worth a warning */
} st_header;

/* Reads and checks the header of a stream. On failure *h is released. */
fsdpck_status st_header_read(const st_input *in, budget *owner, st_header *h,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same for a JSON text in memory, at text_offset_bytes of its file and followed by data_nbytes
 * of data. */
fsdpck_status st_header_parse(const char *text, size_t nbytes, uint64_t text_offset_bytes,
                              uint64_t data_nbytes, budget *owner, st_header *h,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

void st_header_release(st_header *h);

/* Borrowed; NUL-terminated, but may contain NUL. */
const char *st_header_name(const st_header *h, const st_entry *e, size_t *nbytes);
const uint64_t *st_header_shape(const st_header *h, const st_entry *e);
/* Text of a key of `__metadata__`, or NULL. */
const char *st_header_metadata(const st_header *h, const char *key, size_t *nbytes);

#endif
