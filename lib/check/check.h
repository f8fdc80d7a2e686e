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
 *   numeric    in the same pass, the elements: NaN, second moments below zero, infinities, zeros, what
 *              is constant; and, where asked for, statistics of each tensor
 *
 * Of a sample, and where time runs out, not all bytes are read: what is said of a tensor as a whole
 * then needs all of its elements.
 *
 * A failure of the input is a finding; what keeps a level from being run (I/O, limits, a file that
 * changes) is the status.
 */
#ifndef FSDPCK_CHECK_CHECK_H
#define FSDPCK_CHECK_CHECK_H

#include "base/pool.h"
#include "base/progress.h"
#include "check/findings.h"
#include "check/moments.h"
#include "state/source.h"

typedef enum check_level {
    CHECK_QUICK,
    CHECK_STRUCTURE,
    CHECK_COVERAGE,
    CHECK_CHECKSUM,
    CHECK_NUMERIC
} check_level;

/* What the reader looks at besides the chunks (format.h), after them. is_checked_elsewhere: whether the record of
 * a file that begins there is summed with the chunks. Adds to the result. */
typedef bool (*check_is_summed_fn)(void *ctx, uint32_t file, uint64_t offset_bytes);
struct check_result;
typedef fsdpck_status (*check_other_records_fn)(void *ctx, check_is_summed_fn is_checked_elsewhere,
                                                void *checked_ctx, struct check_result *result,
                                                fsdpck_error *err);

/* A file of the catalogue whose CRC-64 is wanted, made of the bytes that are read anyway. */
typedef struct check_file {
    uint64_t nbytes; /* 0: not wanted */
    uint64_t crc64;
    bool done; /* every byte of it was read */
} check_file;

/* What one of several processes has of a file to read. */
typedef struct check_work {
    uint64_t nbytes;
    uint32_t file; /* of the catalogue */
} check_work;

/* The processes that do a request together: the same on each of them, in the same order of calls. All
 * look at what is looked at without the bytes; these are shared, and all have the same findings and
 * sums in the end. A failure of one is one of all. */
typedef fsdpck_status (*check_receive_fn)(void *arg, unsigned rank, const uint8_t *bytes,
                                          uint64_t nbytes, fsdpck_error *err);
typedef struct check_peers {
    void *ctx;
    unsigned rank;
    fsdpck_status (*agree)(void *ctx, fsdpck_status st, fsdpck_error *err);
    fsdpck_status (*same)(void *ctx, uint64_t value, const char *what, fsdpck_error *err);
    /* mine[i] is whether job i is this process's. */
    fsdpck_status (*assignment)(void *ctx, const check_work *jobs, uint64_t count, uint8_t *mine,
                                fsdpck_error *err);
    fsdpck_status (*xor_words)(void *ctx, uint64_t *words, uint64_t count, fsdpck_error *err);
    fsdpck_status (*or_words)(void *ctx, uint64_t *words, uint64_t count, fsdpck_error *err);
    /* What each has, to all: take is called for rank after rank, for those that have something. */
    fsdpck_status (*gather)(void *ctx, fsdpck_status st, const void *bytes, uint64_t nbytes,
                            check_receive_fn take, void *arg, fsdpck_error *err);
} check_peers;

/* Pointers are borrowed; peers, cancel, progress and metadata may be NULL. */
typedef struct check_request {
    const catalogue *cat;
    const source *source;
    const char *folder; /* that files of the catalogue are in; NULL: path is the one file */
    const char *path;   /* of the checkpoint */
    check_level level;
    unsigned nthreads; /* 0 counts as 1 */
    /* For streams (source.stream_nbytes), which one worker may have whatever it takes; 0: no bound. */
    uint64_t memory_nbytes;
    const check_peers *peers;
    const cancel_token *cancel;
    progress *progress;
    budget *metadata;
    check_other_records_fn other_records; /* NULL: there is nothing besides */
    void *other_records_ctx;
    check_file *files; /* by file of the catalogue; NULL: none is wanted */
    bool statistics;   /* at level numeric */
    /* A sample: records, or parts of those without a checksum, by number: those whose number times
     * the golden ratio has a fraction in [sample_begin, sample_end] / 2^64. Both 0: all. */
    uint64_t sample_begin, sample_end;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
} check_request;

/* Of a tensor. */
typedef struct check_statistics {
    uint64_t nelems; /* looked at; of a complex tensor both parts count */
    uint64_t nan, inf;
    moments m;
    int exponent_least; /* of the first count */
    uint32_t exponents;
    uint64_t *counts;
} check_statistics;

typedef struct check_result {
    uint64_t chunks;      /* with elements */
    uint64_t records;     /* different ranges of files that they lie in */
    uint64_t bytes_total; /* of the records, as stored */
    uint64_t bytes_read;
    uint64_t bytes_summed;     /* compared with a checksum */
    uint64_t unsummed_tensors; /* some of whose bytes have no checksum */
    uint64_t unverified_nbytes;
    uint64_t unread_tensors; /* some of whose chunks have a finding in place of a place */
    uint64_t unread_nbytes;
    uint64_t skipped_records;  /* not read, or not as a whole: sampled, out of time */
    bool stopped;              /* out of time */
    check_statistics *numbers; /* by tensor; NULL where they were not asked for */
    uint64_t ntensors;
} check_result;

void check_result_release(check_result *result);

/* Releases nothing on failure: check_result_release may always be called. */
fsdpck_status check_run(const check_request *r, findings *found, check_result *result,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
