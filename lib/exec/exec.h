/* exec.h: moves the bytes of a plan.
 *
 *     exec_request r = {.plan = p, .source = &src, .target = &to, .nthreads = n, ...};
 *     struct exec *x;
 *     RETURN_IF(exec_resolve(&r, &x, err));   // reads all needed blob headers; writes nothing
 *     output_begin(&out, ...);
 *     for each file of to.cat:
 *         output_add(&out, ...);             // same order, same sizes
 *     exec_run(x, &out, err);                // chunks, constant bytes and target.lates
 *     writer->seal(...);                     // bytes that depend on several chunks
 *     output_commit(&out, err);
 *     exec_free(x);
 *
 * Work is a list of items, each an output range of the plan, which workers take in turn. Data that
 * cannot be read in output order (compressed blobs) follows as source-driven items. Output bytes
 * depend only on the plan: not on threads, memory or timing. Memory for data is workers x buffers
 * within memory_nbytes. Memory per chunk (24 bytes each, 1 for deferred bytes) comes from
 * `metadata`.
 *
 * If the target is compressed (state/filter.h), exec_run compresses it cell by cell (compress.c)
 * and sets the size of the output's only file, which was added with 0 bytes. This excludes groups
 * and streams.
 *
 * Large files are written with O_DIRECT if the output was opened for it. Their last block is
 * zero-padded to 4,096 bytes; output_commit truncates the padding.
 */
#ifndef FSDPCK_EXEC_EXEC_H
#define FSDPCK_EXEC_EXEC_H

#include "base/log.h"
#include "base/pool.h"
#include "base/progress.h"
#include "group/group.h"
#include "io/journal.h"
#include "io/output.h"
#include "kernels/gpu.h"
#include "plan/plan.h"
#include "plan/segment.h"
#include "state/source.h"

enum { EXEC_DIRECT_AUTO = 0, EXEC_DIRECT_ON = 1, EXEC_DIRECT_OFF = 2 };

/* Smaller files are written through the page cache (EXEC_DIRECT_AUTO). */
#define EXEC_DIRECT_NBYTES ((uint64_t)4 << 20)
/* Less memory than this is refused (USAGE). */
#define EXEC_MEMORY_NBYTES_MIN ((uint64_t)16 << 20)

/* Records each plain tensor that differs between ranks (CAT_TENSOR_EACH_RANK). A difference is then
 * not a failure, and all copies are compared before any other failure is reported. */
typedef struct rank_differences {
    uint64_t *tensors;  /* a bit for each source tensor; the caller zeroes them */
    uint64_t first_job; /* job of `first`, if any */
    bool any;
    fsdpck_error first;
} rank_differences;

/* All pointers are borrowed until exec_free; group, source_folder, gpu, differences, cancel, progress, log and
 * metadata may be NULL. */
typedef struct exec_request {
    const plan *plan;
    const source *source;
    target *target;    /* the plan's; chunk_crc and chunk_digest are filled if wanted */
    unsigned nthreads; /* 0 counts as 1 */
    uint64_t memory_nbytes;
    int direct;   /* EXEC_DIRECT_... */
    group *group; /* the ranks that share the work; all have the same plan, target and output */
    struct remote_folder
        *source_folder; /* remote files of the source; NULL: all ranks read the same files */
    /* If each host has its own output: by target file, whether this host writes it; exactly one
     * host does. NULL: a single output. */
    const uint8_t *is_own_file;
    const struct hosts *hosts; /* with is_own_file */
    gpu *gpu;                  /* fills tiles; threads still handle streams and replicas */
    bool gpu_required; /* its failure fails the run; else threads continue, with a warning */
    rank_differences *differences; /* NULL: the first difference is a failure */
    bool ignores_copies;           /* headers of replicas are read, their bytes are not compared */
    const cancel_token *cancel;
    progress *progress;
    const logger *log;
    budget *metadata;
} exec_request;

struct exec;

struct exec_stats {
    uint64_t bytes_read;      /* by read_at and decoded from streams; without headers */
    uint64_t reads;           /* calls of read_at */
    uint64_t bytes_travelled; /* of bytes_read: from disks of other ranks */
    uint64_t bytes_exchanged; /* of bytes_travelled: by NCCL, from GPU to GPU, in final form */
    uint64_t bytes_written;
    uint64_t direct_bytes; /* of bytes_written */
    uint64_t
        cast_overflows; /* finite elements out of range of their new dtype (an element split by a step's edge may count twice) */
    uint64_t replicas_trusted;  /* not compared: REPLICAS_FIRST */
    uint64_t replicas_by_crc;   /* equal by stored checksums */
    uint64_t replicas_compared; /* equal byte by byte */
    uint64_t streams;           /* compressed chunks that were decoded */
    double
        read_amplification; /* planned bytes read per byte needed, including rows that are read again because row blocks exceed the memory */
    uint64_t buffer_nbytes; /* memory for data, all workers */
    uint64_t gpu_tiles;     /* filled by a GPU */
    uint64_t kept_ranges, kept_nbytes; /* of a journal: not written, see exec_use_journal */
    uint64_t recorded_nbytes;          /* of all ranges of a journal */
    unsigned workers;
};

/* Locates every chunk that the plan reads, in parallel, and compares the checksums of replicas
 * (REPLICA-DIFFER: BADINPUT). On failure *x is NULL. Collective in a group, after the ranks have
 * agreed on their plan: each locates a part and sends it to the others. A failure of this step is
 * the same on all ranks; later steps may fail on a single rank. */
fsdpck_status exec_resolve(const exec_request *r, struct exec **x,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Files whose located chunks have the data of another file's, as a check reports them (FILE-SAME). Not for sources on the
 * ranks' own disks. */
typedef void (*exec_same_fn)(void *ctx, const fsdpck_error *what);
fsdpck_status exec_find_same_files(const struct exec *x, exec_same_fn fn, void *ctx,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Collective in a group, before exec_run: the ranks agree on st; distributes the items over those that `takes` work.
 * If the source is on the ranks' own disks, an item goes to the rank with most of its bytes. */
fsdpck_status exec_assign_work(struct exec *x, bool takes, fsdpck_status st,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Hash of what the located chunks add to plan_hash: where their elements are, and what copying does to them. */
uint64_t exec_hash(const struct exec *x);
/* Whether elements are computed while they are copied, from more than the source's bytes and the plan. */
bool exec_is_computed(const struct exec *x);
/* Before exec_run with an output: ranges of `old` (NULL: none) that the output contains with the same checksum are
 * kept, and each range that is written or kept is added to w. Both are borrowed until exec_free. Engine of threads
 * only. */
void exec_use_journal(struct exec *x, const journal *old, journal_writer *w);
/* This rank's items: job 0 to count - 1 -> item. */
uint64_t exec_own_item_count(const struct exec *x);
uint64_t exec_own_item(const struct exec *x, uint64_t job);

/* Compares the other replicas, writes all files of `out` (same indices as in the target), then
 * checks that the source did not change. Once per exec. If `out` is NULL, nothing is written and
 * only target.chunk_digest is filled (want_digest, not want_crc). In a group each rank runs its
 * items, they agree at the end, and every rank has all checksums. What joined ranks wrote is flushed. Deferred bytes that depend on
 * checksums of several ranks are written by rank 0, or by one rank of each host. */
fsdpck_status exec_run(struct exec *x, output *out, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* For callers that need the bytes: instead of exec_run, or after one without an output. Fills a
 * range of one file, up to the limit, into a buffer of the worker, valid until its next call. One
 * thread at a time per worker. Data of streams (exec_is_streamed) is zeros. The caller must call
 * exec_check_replicas and source.check_unchanged itself. */
fsdpck_status exec_fill(struct exec *x, unsigned worker, const output_range *range,
                        const uint8_t **bytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* pool_run on a run's workers, whose threads have the stacks that its engine needs. */
fsdpck_status exec_pool_run(const struct exec *x, unsigned nworkers, uint64_t njobs, pool_job_fn fn,
                            void *ctx, const cancel_token *cancel,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
void exec_fill_limits(const struct exec *x, unsigned *workers, uint64_t *nbytes);
/* The best length of a range to fill at a time: step_nbytes, or more if its sources are strided. */
uint64_t exec_fill_nbytes(const struct exec *x, const output_range *range, uint64_t step_nbytes);
/* Whether any part of a target tensor comes from compressed chunks. */
bool exec_is_streamed(const struct exec *x, uint32_t target_tensor);
fsdpck_status exec_check_replicas(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Collective, after exec_fill: the ranks agree on st, and from now on exec_get_stats returns the totals
 * of all ranks. */
fsdpck_status exec_all_reduce_stats(struct exec *x, fsdpck_status st,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

/* At any time. After exec_run: the totals of all ranks. */
void exec_get_stats(const struct exec *x, struct exec_stats *stats);

void exec_free(struct exec *x);

/* --- gpu_device.c --- */

/* Opens the device of this rank: the ranks of a host use its devices in turn. DEVICE if none is
 * usable. Close it after every exec that uses it. */
fsdpck_status exec_open_gpu(const group *g, gpu **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The device of this number. DEVICE if it is not usable. */
fsdpck_status exec_open_gpu_at(unsigned index, gpu **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
void exec_close_gpu(gpu *g); /* accepts NULL */
/* The GPU support of this build, or NULL: its name for users, and one line about it. */
const char *exec_gpu_name(void);
const char *exec_gpu_description(void);
/* The usable devices, in one line. */
void exec_gpu_describe_state(char *text, size_t capacity);

#endif
