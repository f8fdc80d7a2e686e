/* target.h: what there shall be: the target catalogue, and what a format writer adds to it.
 *
 * Life of a target:
 *   1. aim fills `cat` (tensors under their new names, one chunk each when consolidating), `from`
 *      (which source tensor feeds each), `root` (nested values with TENSOR leaves that index `cat`)
 *      and counts what is left out.
 *   2. the writer's layout() gives every chunk its file and offset (place PLACE_ROWS), declares
 *      the files with their exact sizes, and adds literal bytes (headers, directories, names).
 *   3. plan and exec move the bytes; exec fills chunk_crc where the writer asked for it.
 *   4. the writer's seal() hands over late bytes (checksums), which are written last.
 */
#ifndef FSDPCK_STATE_TARGET_H
#define FSDPCK_STATE_TARGET_H

#include "state/catalogue.h"

typedef struct target_literal {
    uint32_t file;
    uint64_t offset_bytes;
    uint64_t nbytes;
    uint64_t text_at; /* in target.text */
} target_literal;

/* A tensor that views a storage together with others: it has no bytes of its own. */
typedef struct target_view {
    uint32_t storage;       /* the target tensor (CAT_TENSOR_STORAGE) that holds the bytes */
    uint64_t offset_nelems; /* of its first element in the storage */
    uint64_t strides_at;    /* in target.strides: ndim strides, elements */
} target_view;

typedef struct target {
    catalogue cat; /* its files are the output's, named relative to it ("" for a single file) */
    vec from;      /* uint32_t: source tensor of each target tensor */
    value root;    /* in cat.pool; None where the format is flat */
    vec views;     /* target_view; cat_tensor.alias of a viewing tensor is its index here */
    vec strides;   /* uint64_t */
    vec literals;  /* target_literal, by file and offset; none overlaps another or a chunk */
    text_buf text; /* bytes of the literals */
    bool want_crc; /* set by layout: exec must fill chunk_crc */
    uint32_t *chunk_crc; /* CRC-32 of each target chunk's bytes as written */
    bool is_folder;      /* output is a folder of files */
} target;

/* A literal, copied. */
fsdpck_status target_add_literal(target *t, uint32_t file, uint64_t offset_bytes, const void *bytes,
                                 uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
void target_init(target *t, budget *owner);
void target_release(target *t);

#endif
