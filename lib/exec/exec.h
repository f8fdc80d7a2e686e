/* exec.h: moving the bytes of a plan.
 *
 *     exec_request r = {.plan = p, .source = &src, .target = &to, .nthreads = n, ...};
 *     struct exec *x;
 *     RETURN_IF(exec_resolve(&r, &x, err));   // heads of all blobs needed; nothing is written yet
 *     output_begin(&out, ...);
 *     for each file of to.cat:
 *         output_add(&out, ...);             // same order, same sizes
 *     exec_run(x, &out, err);                // all bytes of chunks, literals and target.lates
 *     writer->seal(...);                     // what depends on more than one chunk
 *     output_commit(&out, err);
 *     exec_free(x);
 *
 * Work is a list of items, each an output range of the plan, taken by workers in turn; what cannot
 * be read in output order (compressed blobs) follows as source-driven items. Output bytes depend on
 * the plan alone: not on threads, memory or timing. Memory for data is workers x buffers within
 * memory_nbytes; what grows with the number of chunks (24 bytes each, 1 for late bytes) is drawn
 * from `metadata`.
 *
 * Where the target is packed (state/filter.h) exec_run compresses it cell by cell (pack.c), and gives the
 * output's one file, added with 0 bytes, its size. There is no group then, nor are there streams.
 *
 * Large files are written with O_DIRECT where the output was opened for it; their last block
 * is padded with zeros up to 4,096 bytes, which output_commit cuts off.
 */
#ifndef FSDPCK_EXEC_EXEC_H
#define FSDPCK_EXEC_EXEC_H

#include "base/log.h"
#include "base/pool.h"
#include "base/progress.h"
#include "group/group.h"
#include "io/output.h"
#include "kernels/gpu.h"
#include "plan/plan.h"
#include "plan/segment.h"
#include "state/source.h"

enum { EXEC_DIRECT_AUTO = 0, EXEC_DIRECT_ON = 1, EXEC_DIRECT_OFF = 2 };

/* Under this size a file is written through the page cache (EXEC_DIRECT_AUTO). */
#define EXEC_DIRECT_NBYTES ((uint64_t)4 << 20)
/* Less memory than this is refused (USAGE). */
#define EXEC_MEMORY_NBYTES_MIN ((uint64_t)16 << 20)

/* For those who want to know of each plain tensor that differs between ranks (CAT_TENSOR_EACH_RANK): one
 * that does is no failure then, and all copies are compared before another failure is one. */
typedef struct rank_differences {
    uint64_t *tensors;  /* a bit of each source tensor; zeros before */
    uint64_t first_job; /* of `first`, where there is any */
    bool any;
    fsdpck_error first;
} rank_differences;

/* All pointers are borrowed until exec_free; group, source_folder, gpu, differences, cancel, progress, log and
 * metadata may be NULL. */
typedef struct exec_request {
    const plan *plan;
    const source *source;
    target *target;    /* the plan's; chunk_crc and chunk_digest are filled where wanted */
    unsigned nthreads; /* 0 counts as 1 */
    uint64_t memory_nbytes;
    int direct;   /* EXEC_DIRECT_... */
    group *group; /* who shares the work: of every rank the same plan, target and output */
    const struct remote_folder
        *source_folder; /* whose disks the source is on; NULL: all see all of it */
    /* Where each host has an output of its own: by target file, whether it is written on this one; every
     * file on one host. NULL: all on one. */
    const uint8_t *is_own_file;
    const struct hosts *hosts; /* with is_own_file */
    gpu *gpu;          /* tiles are filled by it; streams and replicas stay with the threads */
    bool gpu_required; /* its failure is the run's; else threads go on, with a warning */
    rank_differences *differences; /* NULL: the first that differs is a failure */
    const cancel_token *cancel;
    progress *progress;
    const logger *log;
    budget *metadata;
} exec_request;

struct exec;

struct exec_stats {
    uint64_t bytes_read;      /* by read_at and decoded from streams; heads excluded */
    uint64_t reads;           /* calls of read_at */
    uint64_t bytes_travelled; /* of bytes_read: from disks of other ranks */
    uint64_t bytes_exchanged; /* of bytes_travelled: by NCCL, from GPU to GPU, as they are to be */
    uint64_t bytes_written;
    uint64_t direct_bytes;     /* of bytes_written */
    uint64_t cast_overflows;   /* finite elements out of range of their new dtype (one that a step's
                                edge cuts in two may count twice) */
    uint64_t replicas_trusted; /* not looked at: REPLICAS_FIRST */
    uint64_t replicas_by_crc;  /* found equal by their stored checksums */
    uint64_t replicas_compared; /* found equal byte by byte */
    uint64_t streams;           /* compressed chunks that were decoded */
    double read_amplification;  /* bytes read for each byte that is needed, as planned: the plan's,
                                   and what bands of rows that do not fit the memory read again */
    uint64_t buffer_nbytes;     /* memory taken for data, all workers */
    uint64_t gpu_tiles;         /* filled by a GPU */
    unsigned workers;
};

/* Locates every chunk that the plan reads, in parallel, and compares the checksums of replicas
 * (REPLICA-DIFFER: BADINPUT). On failure *x is NULL. In a group by all ranks, once they have agreed on
 * their plan: each locates a part and tells the others, and a failure of that is the same for all; what
 * follows may fail for one alone. */
fsdpck_status exec_resolve(const exec_request *r, struct exec **x,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* In a group, by all ranks before exec_run: each gets its share of the items, but those that do not
 * take any. Where the source is on disks of the ranks' own, items go to those that have most of what
 * they read. */
fsdpck_status exec_assign_work(struct exec *x, bool takes, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* This rank's share: job 0 to count - 1 -> item. */
uint64_t exec_own_item_count(const struct exec *x);
uint64_t exec_own_item(const struct exec *x, uint64_t job);

/* Compares the other replicas, writes all files of `out` (index equal to the target's), then makes
 * sure that the source did not change meanwhile. Once per exec. Where `out` is NULL nothing is
 * written: target.chunk_digest is what the run is for (want_digest, and not want_crc).
 * In a group each rank does its share, they agree in the end, and every rank has all checksums; late bytes
 * that only the checksums of several ranks give are written by rank 0, or by one rank of each host. */
fsdpck_status exec_run(struct exec *x, output *out, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* For those who look at the bytes themselves: in place of exec_run, or after one without an output.
 * A range of one file, no longer than the limit, into a buffer of that worker's, which is valid
 * until its next call; each worker by one thread at a time. What streams bring (exec_is_streamed) is
 * zeros. The other replicas and whether the source changed are left to the caller:
 * exec_check_replicas, source.check_unchanged. */
fsdpck_status exec_fill(struct exec *x, unsigned worker, const output_range *range,
                        const uint8_t **bytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
void exec_fill_limits(const struct exec *x, unsigned *workers, uint64_t *nbytes);
/* How much of a range is best filled at a time. */
uint64_t exec_fill_nbytes(const struct exec *x, const output_range *range);
/* Whether any part of a target tensor comes from compressed chunks. */
bool exec_is_streamed(const struct exec *x, uint32_t target_tensor);
fsdpck_status exec_check_replicas(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* After exec_fill, by all ranks: from now on exec_get_stats gives those of all. */
fsdpck_status exec_all_reduce_stats(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* At any time; complete after exec_run: of all ranks. */
void exec_get_stats(const struct exec *x, struct exec_stats *stats);

void exec_free(struct exec *x);

/* --- gpu_device.c --- */

/* The device of this rank: the ranks of a host take its devices in turn. DEVICE where none is usable.
 * Closed after every exec that has it. */
fsdpck_status exec_open_gpu(const group *g, gpu **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
void exec_close_gpu(gpu *g);
/* What was built in, or NULL; and what is there to use it, in one line. */
const char *exec_gpu_description(void);
void exec_gpu_describe_state(char *text, size_t capacity);

#endif
