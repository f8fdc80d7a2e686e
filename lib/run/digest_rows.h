/* digest_rows.h: the digests of all tensors of a target, once exec has filled chunk_digest.
 *
 *     digest_rows d;
 *     RETURN_IF(digest_rows_make(&d, &to, err));     // borrows the target
 *     for (i = 0; i < d.count; i++) ... d.rows[i] ...
 *     digest_rows_release(&d);                       // also after a failure
 *
 * A digest covers the text `dtype[d0,d1,...]`, a newline and the row-major elements.
 */
#ifndef FSDPCK_RUN_DIGEST_ROWS_H
#define FSDPCK_RUN_DIGEST_ROWS_H

#include "state/target.h"

typedef struct digest_row {
    uint64_t tensor; /* of the target */
    const char *name;
    size_t name_nbytes;
    size_t type_at; /* "float32[5,3]" in the texts */
    uint64_t digest;
} digest_row;

typedef struct digest_rows {
    digest_row *rows; /* by name */
    uint64_t count;
    text_buf texts;
    uint64_t nbytes; /* of all elements */
    uint64_t whole;  /* digest of the printed list, with unescaped names */
} digest_rows;

/* Covers the tensors that a checkpoint lists, not shared storages or tensors inside objects. */
fsdpck_status digest_rows_make(digest_rows *d, const target *t,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
void digest_rows_release(digest_rows *d);

/* Recomputes `whole` after the caller has changed a digest. */
void digest_rows_update_total(digest_rows *d);
/* Index of the row with this name, or d->count. */
uint64_t digest_rows_find(const digest_rows *d, const char *name, size_t nbytes);

#endif
