/* check.h: a checkpoint looked through, level by level, without changing or writing anything.
 *
 *     check_request r = {.cat = &cat, .source = &src, .level = CHECK_CHECKSUM, .nthreads = 4, ...};
 *     check_result result = {0};
 *     st = check_run(&r, &found, &result, err);     // what is wrong goes to `found`
 *
 * Opening the checkpoint has done what can be told from the metadata. Then:
 *   coverage   the chunks of each tensor cover it exactly once; the head of each payload says the
 *              dtype and shape that the metadata say, and lies where they say
 *              objects are read, and what their pickles would call is looked at
 *   checksum   every byte of every record against its CRC-32, or decoded to its end where it is
 *              compressed
 *   numeric    in the same pass, the elements: NaN, second moments below zero, infinities, zeros
 *
 * A failure of the input is a finding; what keeps a level from being run (I/O, limits, a file that
 * changes) is the status.
 */
#ifndef FSDPCK_VERIFY_CHECK_H
#define FSDPCK_VERIFY_CHECK_H

#include "base/pool.h"
#include "base/progress.h"
#include "state/source.h"
#include "verify/findings.h"

typedef enum check_level {
    CHECK_QUICK,
    CHECK_STRUCTURE,
    CHECK_COVERAGE,
    CHECK_CHECKSUM,
    CHECK_NUMERIC
} check_level;

/* What the reader looks at besides the chunks (format.h), after them. is_summed: whether the record of
 * a file that begins there is summed with the chunks. Adds to the result. */
typedef bool (*check_is_summed_fn)(void *ctx, uint32_t file, uint64_t offset_bytes);
struct check_result;
typedef fsdpck_status (*check_rest_fn)(void *ctx, check_is_summed_fn is_summed, void *summed_ctx,
                                       struct check_result *result, fsdpck_error *err);

/* Pointers are borrowed; cancel, progress and metadata may be NULL. */
typedef struct check_request {
    const catalogue *cat;
    const source *source;
    const char *folder; /* that files of the catalogue are in; NULL: path is the one file */
    const char *path;   /* of the checkpoint */
    check_level level;
    unsigned nthreads; /* 0 counts as 1 */
    const cancel_token *cancel;
    progress *progress;
    budget *metadata;
    check_rest_fn rest; /* NULL: there is nothing besides */
    void *rest_ctx;
} check_request;

typedef struct check_result {
    uint64_t chunks;      /* with elements */
    uint64_t records;     /* different ranges of files that they lie in */
    uint64_t bytes_total; /* of the records, as stored */
    uint64_t bytes_read;
    uint64_t bytes_summed;     /* compared with a checksum */
    uint64_t unsummed_tensors; /* some of whose bytes have no checksum */
    uint64_t unsummed_nbytes;
    uint64_t unread_tensors; /* some of whose chunks have a finding in place of a place */
    uint64_t unread_nbytes;
} check_result;

fsdpck_status check_run(const check_request *r, findings *found, check_result *result,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
