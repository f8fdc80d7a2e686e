/* pickle_write_internal.h: shared by the files of the pickle writer. */
#ifndef FSDPCK_FORMATS_COMMON_PICKLE_WRITE_INTERNAL_H
#define FSDPCK_FORMATS_COMMON_PICKLE_WRITE_INTERNAL_H

#include "formats/common/pickle.h"
#include "state/value_map.h"

struct pickle_writer {
    const value_pool *pool;
    text_buf *out;
    value_map memo; /* value -> its memo number */
    strtab extra;   /* texts of pickle_put_str and pickle_put_global that the pool does not have */
    uint32_t nmemo; /* entries so far */
    fsdpck_status st; /* first failure; nothing is written after it */
    fsdpck_error *err;
    pickle_tensor_fn tensor_fn;
    void *ctx;
    vec frames; /* see pickle_write.c */
};

/* Memo word of a value: the lower half is the entry's number + 1, or 0; the upper half counts how
 * often the value was begun and not ended. */
#define PICKLE_BEGUN_ONCE (UINT64_C(1) << 32)

void pickle_put_op(pickle_writer *w, int op);
void pickle_put_bytes(pickle_writer *w, const void *bytes, size_t nbytes);
/* The value's note; NULL after a failure. */
uint64_t *pickle_note_of(pickle_writer *w, value v);
/* If the value has an entry, writes a fetch and returns true. */
bool pickle_put_known(pickle_writer *w, value v);
/* Adds a memo entry for the value on top of the stack: for v, or one that is never fetched. */
void pickle_put_memo(pickle_writer *w, value v);
void pickle_put_memo_unused(pickle_writer *w);
void pickle_put_bigint(pickle_writer *w, const uint8_t *le, size_t nbytes);
void pickle_put_double(pickle_writer *w, double d);
void pickle_put_latin1(pickle_writer *w, const uint8_t *bytes, size_t nbytes);
void pickle_fail(pickle_writer *w, fsdpck_status st, const char *text);

#endif
