/* check_internal.h: what the files behind check.h share.
 *
 *     check.c          coverage; where each chunk lies
 *     check_extent.c   sizes, order and names of what is read
 *     check_jobs.c     what is read of the files, in which jobs
 *     check_bytes.c    reading: checksums and numbers in one pass
 *     check_chunks.c    whose the elements are that were read; sums of parts made one
 *     check_numbers.c  what the numbers of a tensor say
 *     check_work.c    what several processes read, made one
 */
#ifndef FSDPCK_CHECK_CHECK_INTERNAL_H
#define FSDPCK_CHECK_CHECK_INTERNAL_H

#include "check/check.h"
#include "check/scan.h"

/* Read at once; summed and scanned in windows, which stay in the cache nearest to the core. */
#define READ_NBYTES   ((uint64_t)1 << 20)
#define WINDOW_NBYTES ((uint64_t)128 << 10)
/* One job: a large record is shared by several workers. Cuts lie at multiples of it, however many
 * threads there are. */
#define JOB_NBYTES ((uint64_t)16 << 20)

/* Extents without a chunk: what is read of a file for its own checksum alone. */
#define NO_CHUNK UINT64_MAX

/* A range of a file. First one for each chunk that was located; then those that are read, each with
 * the chunks that lie in it: its chunk_extents. */
typedef struct extent {
    uint64_t offset_bytes; /* of a stream: where the chunk's blob begins */
    uint64_t nbytes;       /* of a stream: decoded, of the chunk alone */
    uint64_t chunk;        /* one of those that lie in it */
    uint64_t
        at_bytes; /* where in it the chunk's elements begin; of a stream: decoded bytes before */
    uint64_t checked_nbytes; /* so many at its begin are of extents before it */
    uint32_t file;
    uint32_t crc32;
    uint32_t first_chunk_extent, chunk_extents;
    bool has_crc;
    bool stream;
    uint8_t stream_checksum; /* source.h */
    bool swap;
    bool scattered; /* the chunk's elements do not lie side by side */
    bool negated;   /* conj or neg are not resolved: signs are not those of the tensor */
    bool unread;    /* not all of it was: sampled, out of time, or a finding */
} extent;

/* Zeros on end, as far as windows tell. */
typedef struct zero_run {
    uint32_t chunk_extent;
    uint64_t at_bytes, nbytes;
} zero_run;

/* Moments of a part of a chunk_extent. */
typedef struct moments_part {
    uint32_t chunk_extent;
    uint64_t at_bytes;
    moments m;
} moments_part;

typedef struct check {
    const check_request *r;
    findings *found;
    check_result *result;
    vec extents;       /* extent; by file and offset once they are merged */
    vec chunk_extents; /* extent, as located; in the order of the extents that they lie in */
    pthread_mutex_t lock;
    unsigned char *unread; /* by tensor: whether it is among result->unread_tensors */
    bool stopped;          /* out of time; any thread */

    /* At level numeric. */
    scan_counts *sums;            /* by tensor */
    uint32_t *alias;              /* by tensor: one whose elements are its own too, or CAT_NONE */
    unsigned char *replica;       /* by chunk: another one before it has the same box */
    unsigned char *live;          /* by chunk extent: SPOT_... */
    unsigned char *no_statistics; /* by tensor: scattered or negated, no statistics */
    vec zero_runs;                /* zero_run */
    vec parts;                    /* moments_part; with statistics */
} check;

enum { EXTENT_ZEROS = 1, EXTENT_NONZEROS = 2 };            /* live */
enum { STATISTICS_SCATTERED = 1, STATISTICS_NEGATED = 2 }; /* no_statistics */

static inline uint32_t check_tensor_of(const check *c, const extent *e)
{
    return catalogue_chunk(c->r->cat, e->chunk)->tensor;
}

/* For qsort: by file and offset, the longer first. */
int check_compare_extents(const void *left, const void *right);

/* Bytes of the chunk's elements. */
uint64_t check_chunk_nbytes(const catalogue *cat, uint64_t chunk);

/* After extents are merged: every byte of them, checksums and numbers. */
fsdpck_status check_bytes(check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A part of an extent, or a run of small whole ones. */
typedef struct check_job {
    uint32_t first, end;             /* extents */
    uint64_t begin_bytes, end_bytes; /* of the one extent, where it is cut */
} check_job;

/* Adds extents for what files that are to be summed hold besides. Before check_jobs_list. */
fsdpck_status check_jobs_add_gaps(check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* `jobs` gets check_job; of a sample, those that are in it. */
fsdpck_status check_jobs_list(check *c, vec *jobs, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What one worker scans. */
typedef struct chunk_scan {
    check *c;
    uint32_t chunk_extent;        /* the one under way; CAT_NONE */
    uint64_t at_bytes, end_bytes; /* of it, so far */
    scan_counts sums;
    zero_run zeros;
    moments m;
    uint64_t *exponents; /* EXPONENTS of them; NULL without statistics */
} chunk_scan;

fsdpck_status chunk_scans_begin(check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
void chunk_scans_end(check *c);
fsdpck_status chunk_scan_init(chunk_scan *s, check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
void chunk_scan_release(chunk_scan *s);
/* Bytes from `at` of an extent on, which may be changed. */
fsdpck_status chunk_scan_window(chunk_scan *s, const extent *e, uint64_t at, uint8_t *bytes,
                                uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* What is under way is counted. */
fsdpck_status chunk_scan_flush(chunk_scan *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* All parts in order: c->result->numbers. */
fsdpck_status chunk_scans_total(check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* After c->sums are there. */
void check_numbers(check *c);

/* KEY-CONFUSABLE: names that look the same. */
fsdpck_status check_names(check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Room for counts of exponents EXPONENT_MIN + first and on, besides those that are there, and these
 * added. */
fsdpck_status statistics_add_counts(check_statistics *t, uint32_t first, uint32_t n,
                                    const uint64_t *counts, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What was found before something that is shared. */
typedef struct found_mark {
    size_t kept;
    uint64_t counts[FINDING_SEVERITIES], unsupported;
} found_mark;

/* Without peers these do nothing and give st. */
fsdpck_status peers_agree(const check *c, fsdpck_status st, fsdpck_error *err) FSDPCK_MUST_CHECK;
void peers_mark_findings(const check *c, found_mark *m);
/* What each has found since. */
fsdpck_status peers_merge_findings(check *c, fsdpck_status st, const found_mark *m,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Keeps those of the jobs that are this process's. */
fsdpck_status peers_assign_jobs(check *c, vec *jobs, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After the bytes are read: all that was found and summed. crcs: by extent, with room for an even
 * number of them. */
fsdpck_status peers_merge_bytes(check *c, fsdpck_status st, const found_mark *m, uint32_t *crcs,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of the first process alone, what it counted besides the chunks: to all. */
fsdpck_status peers_merge_records(check *c, fsdpck_status st, const found_mark *m,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds the tensor and the file of a chunk to an error. */
void check_add_context(const check *c, uint64_t chunk, fsdpck_error *err);
void check_add_path(const check *c, uint32_t file, fsdpck_error *err);
/* Whether a failure is the input's, and so a finding. */
bool check_is_finding(fsdpck_status st);

#endif
