/* dcp_write_pickle.h: the opcodes of a pickle of DCP metadata, written straight into a text: no
 * tree, and memo entries only for values that are fetched again, since there may be millions of
 * entries. Protocol 2. After a failure (meta_writer.st) the text is invalid.
 */
#ifndef FSDPCK_DCP_WRITE_PICKLE_H
#define FSDPCK_DCP_WRITE_PICKLE_H

#include "formats/common/pickle_opcodes.h"
#include "formats/dcp/dcp_write_internal.h"
#include "state/value_map.h"

/* Classes and attribute names. */
enum word {
    W_METADATA,
    W_TENSOR,
    W_CHUNK,
    W_BYTES,
    W_PROPERTIES,
    W_INDEX,
    W_INFO,
    W_ENCODING,
    W_GET_LAYOUT,
    W_SIZE,
    W_STATE_DICT_METADATA,
    W_PLANNER_DATA,
    W_STORAGE_DATA,
    W_SIZE_KEY,
    W_PROPERTIES_KEY,
    W_CHUNKS_KEY,
    W_OFFSETS_KEY,
    W_SIZES_KEY,
    W_FQN_KEY,
    W_INDEX_KEY,
    W_OFFSET_KEY,
    W_PATH_KEY,
    W_LENGTH_KEY,
    W_COUNT
};

enum {
    META_SIZES_MOST = 1u << 16,    /* torch.Size objects that are remembered */
    META_PENDING_NBYTES = 1u << 14 /* opcodes gathered before they are appended */
};

/* Memo numbers are kept plus 1; 0 means none yet. */
typedef struct meta_writer {
    const target *t;
    const dcp_write *w;
    const dcp_write_part *part;
    text_buf *out;
    fsdpck_error *err;
    fsdpck_status st; /* first failure */
    uint32_t nmemo;
    uint32_t words[W_COUNT];
    uint32_t properties[DTYPE_COUNT][2]; /* by requires_grad */
    uint32_t layout, encoding;
    uint32_t *names; /* of cat.names */
    size_t name_count;
    value_map keys; /* str values of paths */
    strtab sizes;
    vec size_memos; /* uint32_t, of each id of sizes */
    size_t pending_nbytes;
    uint8_t pending[META_PENDING_NBYTES];
} meta_writer;

void meta_flush(meta_writer *m);
void meta_fail(meta_writer *m, fsdpck_status st);
void meta_put_op(meta_writer *m, int op);
void meta_put_bytes(meta_writer *m, const void *bytes, size_t nbytes);
/* Under 2^63. */
void meta_put_int(meta_writer *m, uint64_t i);
void meta_put_text(meta_writer *m, const char *text, size_t nbytes);
/* The value on top of the stack can be fetched by *memo from now on. */
void meta_remember(meta_writer *m, uint32_t *memo);
/* False if there is no entry yet: the caller then writes the value and stores the entry. */
bool meta_fetch(meta_writer *m, uint32_t memo);
void meta_put_word(meta_writer *m, enum word word);
/* A name of the catalogue. */
void meta_put_name(meta_writer *m, uint32_t name);
/* torch.Size of dims; equal ones are one object, up to a limit. */
void meta_put_size(meta_writer *m, const uint64_t *dims, unsigned ndim);
/* An object of a class, its attributes in between: key, value, key ... */
void meta_begin_object(meta_writer *m, enum word word);
void meta_end_object(meta_writer *m);
/* Call before each item of a dict (OP_SETITEMS) or list (OP_APPENDS), and after the last. */
void meta_next_in_batch(meta_writer *m, uint64_t *count, int op);
void meta_end_batch(meta_writer *m, uint64_t count, int op);

#endif
