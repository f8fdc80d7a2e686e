/* pickle_write_internal.h: what the files of the pickle writer share. */
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

/* What the memo holds for a value: the entry's number + 1 in the lower half, 0 while it has none;
 * in the upper half how often the value has been begun and not ended. */
#define PICKLE_BEGUN_ONCE (UINT64_C(1) << 32)

void pickle_put_op(pickle_writer *w, int op);
void pickle_put_bytes(pickle_writer *w, const void *bytes, size_t nbytes);
/* The value's note; NULL after a failure. */
uint64_t *pickle_note_of(pickle_writer *w, value v);
/* Writes a fetch and returns true where the value has an entry. */
bool pickle_put_known(pickle_writer *w, value v);
/* Gives the value on the stack's top an entry: for v, or one that is never fetched. */
void pickle_put_memo(pickle_writer *w, value v);
void pickle_put_memo_unused(pickle_writer *w);
void pickle_put_bigint(pickle_writer *w, const uint8_t *le, size_t nbytes);
void pickle_put_double(pickle_writer *w, double d);
void pickle_put_latin1(pickle_writer *w, const uint8_t *bytes, size_t nbytes);
void pickle_fail(pickle_writer *w, fsdpck_status st, const char *text);

#endif
