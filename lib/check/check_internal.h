/* check_internal.h: shared by the files that implement check.h.
 *
 *     check.c             coverage; locations of chunks
 *     check_extent.c      sizes, order and names of extents
 *     check_jobs.c        which ranges of the files are read, in which jobs
 *     check_bytes.c       reading: checksums and numbers in one pass
 *     check_chunks.c      maps the elements read to chunks; joins checksums of parts
 *     check_numbers.c     findings about the numbers of a tensor
 *     check_steps.c       steps of the optimizer, by parameter and by file
 *     check_confusable.c  names that look the same
 *     check_merge.c       merges the results of several processes
 */
#ifndef FSDPCK_CHECK_CHECK_INTERNAL_H
#define FSDPCK_CHECK_CHECK_INTERNAL_H

#include "check/check.h"
#include "check/scan_elements.h"

/* Bytes per read. They are checksummed and scanned in windows that fit the L1 cache. */
#define READ_NBYTES   ((uint64_t)1 << 20)
#define WINDOW_NBYTES ((uint64_t)128 << 10)
/* Bytes per job: several workers share a large record. Jobs begin at multiples of it, for any
 * number of threads. */
#define JOB_NBYTES ((uint64_t)16 << 20)

/* Extents without a chunk, read only for the checksum of the file. */
#define NO_CHUNK UINT64_MAX

/* A range of a file. First one per located chunk; then merged ranges to read, each with the chunks
 * in it: its chunk_extents. */
typedef struct extent {
    uint64_t offset_bytes; /* of a stream: begin of the chunk's blob */
    uint64_t nbytes;       /* of a stream: decoded size of only the chunk */
    uint64_t chunk;        /* one of the chunks in it */
    uint64_t
        at_bytes; /* offset of the chunk's elements in it; of a stream: decoded bytes before them */
    uint64_t checked_nbytes; /* bytes at its begin that belong to preceding extents */
    uint32_t file;
    uint32_t crc32;
    uint32_t first_chunk_extent, chunk_extents;
    bool has_crc;
    bool stream;
    uint8_t stream_checksum; /* source.h */
    bool swap;
    bool scattered; /* the chunk's elements are not contiguous */
    bool negated;   /* conj, neg or add is not resolved: values may differ from the tensor's */
    bool unread;    /* not read completely: sampled, out of time, or a finding */
} extent;

/* A run of zeros, with the resolution of windows. */
typedef struct zero_run {
    uint32_t chunk_extent;
    uint64_t at_bytes, nbytes;
} zero_run;

/* Moments of a part of a chunk_extent. */
typedef struct moments_part {
    uint32_t chunk_extent;
    uint64_t at_bytes;
    element_stats m;
} moments_part;

typedef struct check {
    const check_request *r;
    findings *found;
    check_result *result;
    vec extents;       /* extent; by file and offset once merged */
    vec chunk_extents; /* extent, as located; in the order of the merged extents */
    pthread_mutex_t lock;
    unsigned char *unread; /* by tensor: counted in result->unread_tensors */
    bool stopped;          /* out of time; any thread */

    /* At level numeric. */
    scan_counts *sums;            /* by tensor */
    uint32_t *alias;              /* by tensor: a tensor with the same elements, or CAT_NONE */
    unsigned char *replica;       /* by chunk: an earlier one has the same box */
    unsigned char *live;          /* by chunk extent: EXTENT_... */
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

/* After extents are merged: reads all bytes, computes checksums and scans numbers. */
fsdpck_status check_bytes(check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A part of an extent, or a run of small whole ones. */
typedef struct check_job {
    uint32_t first, end;             /* extents */
    uint64_t begin_bytes, end_bytes; /* of the only extent, if the job is a part of it */
} check_job;

/* Adds extents for the remaining bytes of files with a wanted checksum. Before check_jobs_list. */
fsdpck_status check_jobs_add_gaps(check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* `jobs` gets check_job; only those of the sample, if any. */
fsdpck_status check_jobs_list(check *c, vec *jobs, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What one worker scans. */
typedef struct chunk_scan {
    check *c;
    uint32_t chunk_extent;        /* the current one; CAT_NONE */
    uint64_t at_bytes, end_bytes; /* its scanned range */
    scan_counts sums;
    zero_run zeros;
    element_stats m;
    uint64_t *exponents; /* EXPONENTS of them; NULL without statistics */
} chunk_scan;

fsdpck_status chunk_scans_begin(check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
void chunk_scans_end(check *c);
fsdpck_status chunk_scan_init(chunk_scan *s, check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
void chunk_scan_release(chunk_scan *s);
/* Scans bytes of an extent from `at` on, which it may modify. */
fsdpck_status chunk_scan_window(chunk_scan *s, const extent *e, uint64_t at, uint8_t *bytes,
                                uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Finishes the current chunk extent and adds its counts. */
fsdpck_status chunk_scan_flush(chunk_scan *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Combines all parts in order into c->result->numbers. */
fsdpck_status chunk_scans_total(check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* After c->sums are there. */
void check_numbers(check *c);
/* NUM-STEP: whether the parameters are at one step of the optimizer. */
void check_steps(check *c);

/* KEY-CONFUSABLE: names that look the same. */
fsdpck_status check_confusable(check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Makes room for the counts of exponents from EXPONENT_MIN + first on, and adds `counts`. */
fsdpck_status statistics_add_counts(check_statistics *t, uint32_t first, uint32_t n,
                                    const uint64_t *counts, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Number of findings before a shared step. */
typedef struct found_mark {
    size_t kept;
    uint64_t counts[FINDING_SEVERITIES], unsupported;
} found_mark;

/* Without peers these do nothing and return st. */
fsdpck_status peers_agree(const check *c, fsdpck_status st, fsdpck_error *err) FSDPCK_MUST_CHECK;
void peers_mark_findings(const check *c, found_mark *m);
/* Exchanges the findings made since. */
fsdpck_status peers_merge_findings(check *c, fsdpck_status st, const found_mark *m,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Keeps only the jobs of this process. */
fsdpck_status peers_assign_jobs(check *c, vec *jobs, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After the bytes are read: exchanges findings and checksums. crcs: by extent, with room for an
 * even number. */
fsdpck_status peers_merge_bytes(check *c, fsdpck_status st, const found_mark *m, uint32_t *crcs,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Sends the counts of other records, which only the first process has, to all. */
fsdpck_status peers_merge_records(check *c, fsdpck_status st, const found_mark *m,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds the tensor and the file of a chunk to an error. */
void check_add_context(const check *c, uint64_t chunk, fsdpck_error *err);
void check_add_path(const check *c, uint32_t file, fsdpck_error *err);
/* Whether a failure is a defect of the input, and so a finding. */
bool check_is_finding(fsdpck_status st);

#endif
