/* check.h: checks a checkpoint level by level, without writing.
 *
 *     check_request r = {.cat = &cat, .source = &src, .level = CHECK_CHECKSUM, .nthreads = 4, ...};
 *     check_result result = {0};
 *     st = check_run(&r, &found, &result, err);     // defects are added to `found`
 *
 * Opening the checkpoint has checked its metadata. Then:
 *   coverage   the chunks of each tensor cover it exactly once; the header of each blob has the
 *              dtype, shape and location that the metadata records
 *              objects are read, and the calls in their pickles are checked
 *   checksum   every byte of every record against its CRC-32, or decoded to its end if it is
 *              compressed
 *   numeric    in the same pass, the elements: NaN, second moments below zero, infinities, zeros,
 *              constants, and on request statistics of each tensor
 *
 * A sample, or a check that runs out of time, does not read all bytes. Findings about a whole
 * tensor are then made only if all of its elements were read.
 *
 * Defects of the input are findings. The status is a failure only if a level cannot run: I/O,
 * limits, a file that changes.
 */
#ifndef FSDPCK_CHECK_CHECK_H
#define FSDPCK_CHECK_CHECK_H

#include "base/pool.h"
#include "base/progress.h"
#include "check/element_stats.h"
#include "check/reported_findings.h"
#include "state/source.h"

typedef enum check_level {
    CHECK_QUICK,
    CHECK_STRUCTURE,
    CHECK_COVERAGE,
    CHECK_CHECKSUM,
    CHECK_NUMERIC
} check_level;

/* The reader's check of other records than chunks (format.h), run after the chunks.
 * is_checked_elsewhere: whether the record that begins at an offset is checksummed with the chunks.
 * Adds to the result. */
typedef bool (*check_is_summed_fn)(void *ctx, uint32_t file, uint64_t offset_bytes);
struct check_result;
typedef fsdpck_status (*check_other_records_fn)(void *ctx, check_is_summed_fn is_checked_elsewhere,
                                                void *checked_ctx, struct check_result *result,
                                                fsdpck_error *err);

/* A file of the catalogue whose CRC-64 is computed from the bytes that the check reads. */
typedef struct check_file {
    uint64_t nbytes; /* 0: not wanted */
    uint64_t crc64;
    bool done; /* every byte of it was read */
} check_file;

/* A part of a file that one of several processes reads. */
typedef struct check_work {
    uint64_t nbytes;
    uint32_t file; /* of the catalogue */
} check_work;

/* The processes that share a request. Each makes the same calls in the same order. All check the
 * metadata; the bytes are divided among them. In the end all have the same findings and totals. A
 * failure of one is a failure of all. */
typedef fsdpck_status (*check_receive_fn)(void *arg, unsigned rank, const uint8_t *bytes,
                                          uint64_t nbytes, fsdpck_error *err);
typedef struct check_peers {
    void *ctx;
    unsigned rank;
    fsdpck_status (*agree)(void *ctx, fsdpck_status st, fsdpck_error *err);
    fsdpck_status (*same)(void *ctx, uint64_t value, const char *what, fsdpck_error *err);
    /* mine[i]: whether job i belongs to this process. */
    fsdpck_status (*assignment)(void *ctx, const check_work *jobs, uint64_t count, uint8_t *mine,
                                fsdpck_error *err);
    fsdpck_status (*xor_words)(void *ctx, uint64_t *words, uint64_t count, fsdpck_error *err);
    fsdpck_status (*or_words)(void *ctx, uint64_t *words, uint64_t count, fsdpck_error *err);
    /* Sends the bytes of each process to all: `take` is called in rank order, for ranks with
     * bytes. */
    fsdpck_status (*gather)(void *ctx, fsdpck_status st, const void *bytes, uint64_t nbytes,
                            check_receive_fn take, void *arg, fsdpck_error *err);
} check_peers;

/* Pointers are borrowed; peers, cancel, progress and metadata may be NULL. */
typedef struct check_request {
    const catalogue *cat;
    const source *source;
    const char *folder; /* the folder of the catalogue's files; NULL: path is the only file */
    const char *path;   /* of the checkpoint */
    check_level level;
    unsigned nthreads; /* 0 counts as 1 */
    /* Memory limit of streams (source.stream_nbytes), which one worker may exceed; 0: no limit. */
    uint64_t memory_nbytes;
    const check_peers *peers;
    const cancel_token *cancel;
    progress *progress;
    budget *metadata;
    check_other_records_fn other_records; /* NULL: no other records */
    void *other_records_ctx;
    check_file *files; /* by file of the catalogue; NULL: none wanted */
    bool statistics;   /* at level numeric */
    /* A sample of the numbered records, or of parts of records without a checksum: those where
     * the fraction of number times golden ratio is in [sample_begin, sample_end] / 2^64. Both 0:
     * all. */
    uint64_t sample_begin, sample_end;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
} check_request;

/* Statistics of a tensor. */
typedef struct check_statistics {
    uint64_t nelems; /* elements scanned; both parts of a complex element count */
    uint64_t nan, inf;
    element_stats m;
    int exponent_least; /* of the first count */
    uint32_t exponents;
    uint64_t *counts;
} check_statistics;

typedef struct check_result {
    uint64_t chunks;      /* with elements */
    uint64_t records;     /* distinct ranges of files with these chunks */
    uint64_t bytes_total; /* of the records, as stored */
    uint64_t bytes_read;
    uint64_t bytes_summed;     /* compared with a checksum */
    uint64_t unsummed_tensors; /* tensors with some bytes without a checksum */
    uint64_t unverified_nbytes;
    uint64_t unread_tensors; /* tensors with chunks that have a finding instead of a location */
    uint64_t unread_nbytes;
    uint64_t skipped_records;  /* not read, or only partly: sampled, out of time */
    bool stopped;              /* out of time */
    uint64_t step_files;       /* at level numeric: files with steps of the optimizer, which were compared */
    check_statistics *numbers; /* by tensor; NULL unless requested */
    uint64_t ntensors;
} check_result;

void check_result_release(check_result *result);

/* Call check_result_release also after a failure. */
fsdpck_status check_run(const check_request *r, findings *found, check_result *result,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
