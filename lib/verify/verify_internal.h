/* verify_internal.h: what the files behind fsdpck_verify share.
 *
 *     verify.c          opens the checkpoint and runs the levels
 *     verify_beside.c   files of a trainer beside the weights
 *     verify_convert.c  what consolidate and reshard would refuse
 *     verify_result.c   what was found, for the caller
 */
#ifndef FSDPCK_VERIFY_VERIFY_INTERNAL_H
#define FSDPCK_VERIFY_VERIFY_INTERNAL_H

#include "check/check.h"
#include "fsdpck_verify.h"
#include "open/checkpoint.h"
#include "verify/expect_internal.h"

struct fsdpck_verify {
    fsdpck_checkpoint *src; /* NULL: it could not be opened */
    const char *path;       /* while it is looked at */
    fsdpck_verify_options options;
    check_level level;
    size_t first_warning; /* of the context, from which on warnings are ours */
    findings found;
    findings downgraded; /* errors that --set makes less of, told while the checkpoint was opened */
    check_result result;
    manifest_check *manifest; /* while it is looked through; NULL where there is none */
    check_file *files;        /* by file of the catalogue; NULL: no sums are wanted */
    manifest_check_result manifest_result;
    uint64_t deadline_ns;
    char not_seen[512];
};

bool verify_is_sample(const fsdpck_verify *v);
/* Not all bytes are read: a sample, or time ran out. */
bool verify_is_partial(const fsdpck_verify *v);

/* Warnings of the context since the last call become findings. */
void verify_add_warnings(fsdpck_verify *v, fsdpck_context *ctx);

/* At level checksum, of a whole check: copies of a chunk that differ. */
fsdpck_status verify_copies(fsdpck_verify *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Files of a trainer's state beside the weights that cannot be opened: warnings. */
fsdpck_status verify_beside(fsdpck_verify *v, fsdpck_context *ctx,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* From level coverage on: what stops a conversion with default options. May load objects into the
 * catalogue, so it comes last. */
fsdpck_status verify_conversions(fsdpck_verify *v, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills v->not_seen: what the check cannot see. */
void verify_set_not_seen(fsdpck_verify *v);

#endif
