/* digest.h: lists of digests, and the digests of tensors inside objects. */
#ifndef FSDPCK_COMPARE_DIGEST_H
#define FSDPCK_COMPARE_DIGEST_H

#include "run/digest_run.h"

/* A line of a list of digests, "HEX  TYPE  NAME"; borrows the text. */
typedef struct digest_line {
    const char *type, *name;
    size_t type_nbytes, name_nbytes;
    uint64_t value;
    size_t number; /* from 1 */
} digest_line;
bool digest_line_parse(const char *text, size_t nbytes, digest_line *l);

/* fsdpck_digests_new; check_manifest as in digest_run. */
fsdpck_status digests_new(fsdpck_context *ctx, fsdpck_checkpoint *src,
                          const fsdpck_digest_options *options, bool check_manifest,
                          fsdpck_digests **out, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* inner_digests.c: of the tensors inside objects that are loaded: what tells them apart, dtype, shape
 * and elements, as a number, by their index in the catalogue. */
fsdpck_status digest_inner(fsdpck_context *ctx, fsdpck_checkpoint *src, const run_options *options,
                           uint64_t *digests, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
